// Elements: made from text only, so that no name in a run can become markup.

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'class') node.className = value;
    else if (name === 'vars') setVars(node, value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// CSS variables; a style attribute would be refused by the page's security policy.
export function setVars(node, vars) {
  for (const [name, value] of Object.entries(vars)) {
    node.style.setProperty(`--${name}`, value);
  }
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const badge = (state, text = state) =>
  el('span', { class: `badge is-${state}` }, text);
