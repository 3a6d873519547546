// el makes an element. Properties whose name has a dash, and role, become attributes.
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "role" || name.includes("-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

// say sets the text of an element if it differs, so that nothing is laid out in vain.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
