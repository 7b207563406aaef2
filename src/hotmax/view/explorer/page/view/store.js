// The state, its past for undo, and the address that follows it.

import { fromAddress, toAddress } from "./state.js";

const MOST_PAST = 200;
const ADDRESS_DELAY = 250; // ms: browsers refuse to change the address more often than that

export class Store {
  constructor(draw) {
    this.draw = draw;
    this.past = [];
    this.gesture = null;
    this.frame = 0;
    this.load();
    addEventListener("hashchange", () => {
      if (location.hash === this.address) return;
      this.past.push(this.state);
      this.load();
      this.draw();
    });
  }

  load() {
    this.address = location.hash;
    const { state, wrong } = fromAddress(location.hash);
    this.state = state;
    this.notice = wrong.length ? `The link could not be read in full: ${wrong.slice(0, 5).join(", ").slice(0, 80)}.` : "";
  }

  /** Change the state. Changes of one gesture, such as a drag, are undone together. */
  set(changes, gesture = null) {
    const next = { ...this.state, ...changes };
    if (gesture === null || gesture !== this.gesture) {
      this.past.push(this.state);
      if (this.past.length > MOST_PAST) this.past.shift();
    }
    this.gesture = gesture;
    this.state = next;
    this.notice = "";
    this.changed();
  }

  endGesture() {
    this.gesture = null;
  }

  undo() {
    if (!this.past.length) return;
    this.state = this.past.pop();
    this.gesture = null;
    this.changed();
  }

  /** Draw in the next frame, once. */
  changed() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.writeAddress(), ADDRESS_DELAY);
  }

  writeAddress() {
    clearTimeout(this.timer);
    if (location.hash !== this.address) return; // the user has gone elsewhere: that is read soon
    history.replaceState(null, "", toAddress(this.state));
    this.address = location.hash;
  }
}
