// The conversations in the rail, and the search in them.
const History = (() => {
  const kBefore = 12, kAfter = 60;  // characters around what was found
  const texts = new Map();  // conversation id -> {updated, messages}: what was read for the search
  let open = () => {};
  let current = '';

  // The messages of a conversation in all their versions, read once.
  function messagesOf(entry) {
    const known = texts.get(entry.id);
    if (known && known.updated === entry.updated) return known.messages;
    const chat = Store.loadChat(entry.id);
    const nodes = chat ? Object.values(chat.nodes).filter((node) => node.role) : [];
    const messages = nodes.map((node) => ({id: node.id, text: node.role === 'user' ? Files.message(node.content, node.files) : splitThought(node).answer}));
    texts.set(entry.id, {updated: entry.updated, messages});
    return messages;
  }

  // Where the words stand: {node, before, found, after}, `node` undefined for the title; null: nowhere.
  function search(entry, words) {
    for (const {id, text} of [{text: entry.title}, ...messagesOf(entry)]) {
      const at = text.toLowerCase().indexOf(words);
      if (at < 0) continue;
      const from = Math.max(0, at - kBefore), to = Math.min(text.length, at + words.length + kAfter);
      return {node: id, before: (from > 0 ? '…' : '') + text.slice(from, at), found: text.slice(at, at + words.length),
        after: text.slice(at + words.length, to) + (to < text.length ? '…' : '')};
    }
    return null;
  }

  function entryNode(entry, find) {
    return h('li', {}, h('button', {type: 'button', class: 'entry', title: entry.title, 'aria-current': entry.id === current ? 'true' : null,
      onclick: () => open(entry.id, find && find.node)}, entry.title,
    find && find.node ? h('span', {class: 'find'}, find.before, h('mark', {}, find.found), find.after) : null));
  }

  function show(id = current) {
    current = id;
    const entries = Store.list();
    const words = byId('search').value.trim().toLowerCase();
    const shown = words ? entries.map((entry) => [entry, search(entry, words)]).filter(([, find]) => find) : entries.map((entry) => [entry, null]);
    byId('chat-list').replaceChildren(...shown.map(([entry, find]) => entryNode(entry, find)));
    byId('no-chats').hidden = entries.length > 0;
    byId('none-found').hidden = !words || shown.length > 0;
    byId('search').hidden = entries.length === 0;
    byId('export-all').disabled = entries.length === 0;
  }

  // `opens(id, node)` shows a conversation, at a message of it when one was found.
  function mount(opens) {
    open = opens;
    byId('search').addEventListener('input', () => show());
    byId('search').addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && byId('search').value) {
        event.stopPropagation();
        event.preventDefault();
        byId('search').value = '';
        show();
      }
    });
  }

  return {show, mount};
})();
