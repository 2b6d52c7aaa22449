// The only place that makes elements. Text from the document becomes text nodes and nothing else:
// no markup is ever parsed here, so a hostile description can only be read.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== undefined));
  return made;
}

/** Paragraphs, as blank lines part them. */
export function prose(text = "") {
  const paragraphs = String(text).split(/\n\s*\n/).filter((paragraph) => paragraph.trim());
  return paragraphs.map((paragraph) => element("p", {}, inline(paragraph)));
}

/** Text with `code` between backticks. No other markup means anything. */
export function inline(text) {
  const pieces = text.split(/`([^`]+)`/);
  return pieces.map((piece, index) => (index % 2 ? element("code", {}, piece) : piece));
}

/** A fold that is filled when it is first opened, so that no schema is unrolled before somebody asks. */
export function fold(summary, attributes, fill) {
  const made = element("details", attributes, element("summary", {}, summary));
  const fillOnce = () => {
    if (!made.open) return;
    made.removeEventListener("toggle", fillOnce);
    made.append(...fill().flat(Infinity));
  };
  made.addEventListener("toggle", fillOnce);
  return made;
}

/** A block of text to copy; it can be focused, because it can be wider than the screen. */
export function listing(label, text) {
  return [
    element("h5", {}, label),
    element("pre", { tabindex: "0", "aria-label": label }, element("code", {}, text)),
  ];
}
