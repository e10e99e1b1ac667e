// Everything on this page is built from nodes and text: no string is ever parsed as HTML.
const byId = (id) => document.getElementById(id);

// h('button', {class: 'x', onclick: f}, 'text', node, ...): an element. A string child becomes a text node.
function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') node.className = value;
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);

// navigator.clipboard exists only on https and localhost; a page served over plain http in a LAN needs the old way.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h('textarea', {class: 'offscreen', 'aria-hidden': 'true', tabindex: '-1'});
    area.value = text;
    document.body.append(area);
    const before = document.activeElement;
    area.select();
    let copied = false;
    try {
      copied = document.execCommand('copy');
    } catch {
      copied = false;
    }
    area.remove();
    if (before) before.focus();
    return copied;
  }
}

// A button that copies and says so for a moment.
function copyButton(label, text) {
  const button = h('button', {type: 'button', class: 'action'}, label);
  button.addEventListener('click', async () => {
    button.textContent = (await copyText(text())) ? 'Copied' : 'Copy failed';
    setTimeout(() => (button.textContent = label), 1600);
  });
  return button;
}

function growTextarea(area) {
  area.style.height = 'auto';
  area.style.height = area.scrollHeight + 2 + 'px';
}

// Says something to screen readers, once.
function announce(text) {
  byId('announcer').textContent = '';
  setTimeout(() => (byId('announcer').textContent = text), 50);
}

let toastTimer = 0;
// A line above the message field, which it moves instead of covering it, with at most one thing to do about it.
function toast(text, action, perform) {
  const box = byId('toast');
  clearTimeout(toastTimer);
  const close = () => {
    box.hidden = true;
    box.replaceChildren();
  };
  box.replaceChildren(h('span', {}, text));
  if (action) {
    box.append(h('button', {type: 'button', class: 'action', onclick: () => {
      close();
      perform();
    }}, action));
  }
  box.append(h('button', {type: 'button', class: 'action', 'aria-label': 'Dismiss', onclick: close}, '×'));
  box.hidden = false;
  toastTimer = setTimeout(close, action ? 12000 : 6000);
}
