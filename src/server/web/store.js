// What this page remembers, all of it in this browser. Each conversation has its own key, so that saving one is cheap
// and a full storage harms only what no longer fits.
const Store = (() => {
  const kPrefix = 'ingot.';
  const kChat = 'chat.';
  const unsaved = new Map();  // what the browser refused to keep
  let onTrouble = () => {};

  function read(key, otherwise) {
    if (unsaved.has(key)) return JSON.parse(unsaved.get(key));
    try {
      const text = localStorage.getItem(kPrefix + key);
      return text === null ? otherwise : JSON.parse(text);
    } catch {
      return otherwise;
    }
  }

  // False when the browser has no room (or no storage at all): the value lives on until the page is closed.
  function write(key, value) {
    const text = JSON.stringify(value);
    try {
      localStorage.setItem(kPrefix + key, text);
      unsaved.delete(key);
      return true;
    } catch {
      unsaved.set(key, text);
      onTrouble();
      return false;
    }
  }

  function remove(key) {
    unsaved.delete(key);
    try {
      localStorage.removeItem(kPrefix + key);
    } catch {
      return;
    }
  }

  // A conversation is a tree: an edited question or a regenerated answer is a sibling of the one before, never a loss.
  function newChat(settings, id = newId()) {
    const now = Date.now();
    return {id, title: '', named: false, created: now, updated: now, settings: {...settings},
      nodes: {root: {id: 'root', children: [], active: 0}}};
  }

  function addNode(chat, parent, role, content) {
    const node = {id: newId(), parent, role, content, children: [], active: 0};
    chat.nodes[node.id] = node;
    const siblings = chat.nodes[parent].children;
    siblings.push(node.id);
    chat.nodes[parent].active = siblings.length - 1;
    return node;
  }

  // The messages on show, oldest first.
  function path(chat) {
    const found = [];
    for (let at = chat.nodes.root; at.children.length > 0;) {
      at = chat.nodes[at.children[at.active]];
      found.push(at);
    }
    return found;
  }

  const titleOf = (chat) => chat.title || 'New conversation';
  const summary = (chat) => ({id: chat.id, title: titleOf(chat), updated: chat.updated});

  function list() {
    const known = read('chats', []);
    return Array.isArray(known) ? known.filter((c) => c && typeof c.id === 'string') : [];
  }

  function saveChat(chat) {
    chat.updated = Date.now();
    const others = list().filter((entry) => entry.id !== chat.id);
    return [write(kChat + chat.id, chat), write('chats', [summary(chat), ...others])].every(Boolean);
  }

  function loadChat(id) {
    return checked(read(kChat + id, null));
  }

  function deleteChat(id) {
    remove(kChat + id);
    remove('draft.' + id);
    remove('files.' + id);
    write('chats', list().filter((entry) => entry.id !== id));
  }

  // A conversation from storage or from a file someone chose: rebuilt field by field, or null when it makes no sense.
  function checked(raw) {
    if (!raw || typeof raw !== 'object' || typeof raw.id !== 'string' || !raw.nodes || !raw.nodes.root) return null;
    const text = (value) => (typeof value === 'string' ? value : '');
    const chat = {id: raw.id, title: text(raw.title), named: raw.named === true, created: Number(raw.created) || Date.now(),
      updated: Number(raw.updated) || Date.now(), settings: Settings.checked(raw.settings), nodes: Object.create(null)};
    const visit = (id, parent, depth) => {
      const from = Object.hasOwn(raw.nodes, id) ? raw.nodes[id] : null;
      if (!from || typeof from !== 'object' || chat.nodes[id] || depth > 10000) return false;
      const node = {id, children: [], active: 0};
      chat.nodes[id] = node;
      if (parent !== null) {
        if (from.role !== 'user' && from.role !== 'assistant') {
          delete chat.nodes[id];
          return false;
        }
        Object.assign(node, {parent, role: from.role, content: text(from.content)});
        if (from.thought) node.thought = text(from.thought);
        if (from.files) node.files = Files.checked(from.files);
        if (from.calls) node.calls = Calls.checked(from.calls);
        if (from.json === true) node.json = true;
        if (from.finish) node.finish = text(from.finish);
        if (from.model) node.model = text(from.model);
        if (from.stopped === true) node.stopped = true;
        if (from.error && typeof from.error === 'object') node.error = {kind: text(from.error.kind), text: text(from.error.text)};
        if (from.stats && typeof from.stats === 'object') {
          node.stats = Object.fromEntries(Object.entries(from.stats).filter(([, value]) => Number.isFinite(value)));
        }
      }
      const children = Array.isArray(from.children) ? from.children.filter((child) => typeof child === 'string') : [];
      node.children = children.filter((child) => visits.push([child, id, depth + 1]));
      node.active = Number.isInteger(from.active) ? from.active : 0;
      return true;
    };
    const visits = [['root', null, 0]];
    while (visits.length > 0) visit(...visits.pop());
    for (const node of Object.values(chat.nodes)) {
      node.children = node.children.filter((child) => chat.nodes[child] && chat.nodes[child].parent === node.id);
      if (node.active < 0 || node.active >= node.children.length) node.active = Math.max(0, node.children.length - 1);
    }
    return chat;
  }

  const kFormat = 'ingot-conversations';
  const exported = (chats) => JSON.stringify({format: kFormat, version: 1, conversations: chats}, null, 1);

  // Conversations in an exported file; throws Error that says what is wrong with it.
  function imported(text) {
    let file;
    try {
      file = JSON.parse(text);
    } catch {
      throw new Error('This file is not JSON.');
    }
    if (!file || file.format !== kFormat || !Array.isArray(file.conversations)) {
      throw new Error('This file was not exported from this page.');
    }
    const chats = file.conversations.map(checked).filter(Boolean);
    if (chats.length === 0) throw new Error('There is no conversation in this file.');
    const taken = new Set(list().map((entry) => entry.id));
    for (const chat of chats) if (taken.has(chat.id)) chat.id = newId();
    return chats;
  }

  // Conversations whose entry in the list was lost (two tabs, a full storage) come back.
  function recover() {
    const known = new Set(list().map((entry) => entry.id));
    const lost = [];
    try {
      for (let i = 0; i < localStorage.length; i++) {
        const key = localStorage.key(i);
        if (key.startsWith(kPrefix + kChat) && !known.has(key.slice((kPrefix + kChat).length))) {
          const chat = loadChat(key.slice((kPrefix + kChat).length));
          if (chat) lost.push(summary(chat));
        }
      }
    } catch {
      return;
    }
    if (lost.length > 0) write('chats', [...list(), ...lost].sort((a, b) => b.updated - a.updated));
  }

  return {read, write, remove, newChat, addNode, path, titleOf, list, saveChat, loadChat, deleteChat, exported, imported, recover,
    troubles: (callback) => (onTrouble = callback), hasUnsaved: () => unsaved.size > 0};
})();
