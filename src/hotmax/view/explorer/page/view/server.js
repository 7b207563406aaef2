// Questions to `hotmax explore`: one in flight for each slot, and the newest wins.

const token = new URLSearchParams(location.search).get("token") ?? "";

export class Server {
  constructor(served, arrived) {
    this.served = served;
    this.arrived = arrived;
    this.slots = new Map();
    this.error = "";
    this.about = null;
  }

  async fetch(path, options = {}) {
    const response = await fetch(path, { ...options, headers: { "X-Hotmax-Token": token }, cache: "no-store" });
    const answer = JSON.parse(await response.text(), revive);
    if (!response.ok) throw new Error(answer.error ?? `the server answered ${response.status}`);
    return answer;
  }

  async start() {
    if (this.served) this.about = await this.fetch("/api/about").catch((error) => this.failed(error));
    return this.about;
  }

  failed(error) {
    this.error = error instanceof TypeError ? "hotmax explore does not answer: it may have been stopped." : error.message;
    return null;
  }

  /** The answer to a question; until it is there, the last one of its slot, or null. */
  ask(slot, path, values) {
    const question = `/api/${path}?${new URLSearchParams(values)}`;
    let place = this.slots.get(slot);
    if (!place) this.slots.set(slot, (place = { asked: null, answered: null, answer: null, busy: false }));
    place.asked = question;
    if (place.answered !== question && !place.busy) this.run(place);
    return place.answer;
  }

  async run(place) {
    place.busy = true;
    const question = place.asked;
    try {
      place.answer = await this.fetch(question);
      this.error = "";
    } catch (error) {
      this.failed(error);
      place.answer = null;
    }
    place.answered = question;
    place.busy = false;
    if (place.asked !== question) this.run(place);
    this.arrived();
  }

  /** Open a file that the user chose. */
  async open(file) {
    this.error = "";
    try {
      if (file.size > this.about.largest) {
        const most = Math.round(this.about.largest / 2 ** 20);
        throw new Error(`${file.name}: at most ${most} MiB can be opened here; give larger files to hotmax explore FILE`);
      }
      const path = `/api/file?${new URLSearchParams({ name: file.name })}`;
      this.about = await this.fetch(path, { method: "POST", body: file });
      this.slots.clear();
      return true;
    } catch (error) {
      this.failed(error);
      return false;
    } finally {
      this.arrived();
    }
  }
}

/** inf and nan, for which JSON has no word, come as { "number": "inf" }. */
function revive(key, value) {
  if (value && typeof value === "object" && typeof value.number === "string") {
    return Number(value.number.replace("inf", "Infinity"));
  }
  return value;
}
