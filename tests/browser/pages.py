"""The page in a browser: opened, moved and read."""

from __future__ import annotations

from urllib.parse import quote

PANELS = (
    *("logits", "temperature", "order", "numbers", "logsumexp"),
    *("jacobian", "loss", "sampling", "attention", "calibration"),
)


class Explorer:
    """The explorer in one tab. What it complains about, or asks of the network, is kept."""

    def __init__(self, context, address):
        self.page = context.new_page()
        self.page.set_default_timeout(120_000)  # ms: a busy machine must not fail a test
        self.address = address
        self.messages, self.requests = [], []
        self.page.on("console", lambda m: self.messages.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, **state):
        """Open the page anew in a state, as from a link."""
        parts = "&".join(f"{name}={quote(str(value), safe=',')}" for name, value in state.items())
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}#{parts}")
        self.page.wait_for_selector(".figure > *")
        return self

    def settle(self):
        """Wait until what was changed is drawn."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
        )

    def number(self, name):
        return as_number(self.page.get_attribute(f'[data-number="{name}"]', "data-value"))

    def values(self, selector):
        """data-value of all elements that match."""
        texts = self.page.eval_on_selector_all(
            selector, "(nodes) => nodes.map((node) => node.dataset.value)"
        )
        return [as_number(text) for text in texts]

    def python(self):
        """What the code of "The same in Python" defines."""
        names = {}
        exec(self.page.text_content("#python"), names)
        return names

    def state(self):
        """The state in the address, once it was written."""
        self.page.wait_for_timeout(400)
        return self.page.evaluate("location.hash")

    def slide(self, selector, value):
        """Move a range input as a person does."""
        self.page.eval_on_selector(
            selector,
            """(node, value) => { node.value = value;
                node.dispatchEvent(new Event("input", { bubbles: true }));
                node.dispatchEvent(new Event("change", { bubbles: true })); }""",
            value,
        )
        self.settle()


def as_number(text):
    return float(text.replace("Infinity", "inf")) if text not in ("yes", "no") else text
