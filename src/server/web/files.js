// Texts that go with a message: files that were chosen or dropped, pages that were pasted. They are shown folded.
const Files = (() => {
  const kMostBytes = 1 << 20;  // of one file
  const kMost = 16;            // with one message
  const kLongPaste = 2000;     // characters, from which a pasted text is a page of its own ...
  const kManyLines = 40;       // ... or lines

  const isLong = (text) => text.length >= kLongPaste || text.split('\n', kManyLines).length >= kManyLines;

  // {name, text}; throws Error that says why it cannot be one.
  async function read(file) {
    if (file.size > kMostBytes) throw new Error(`${file.name} is larger than 1 MB: the model could not read it all.`);
    let text;
    try {
      text = new TextDecoder('utf-8', {fatal: true}).decode(await file.arrayBuffer());
    } catch {
      text = '\0';
    }
    if (text.includes('\0')) throw new Error(`${file.name} is not a text: only texts in UTF-8 can be attached.`);
    if (!text.trim()) throw new Error(`${file.name} is empty.`);
    return {name: file.name, text};
  }

  const pasted = (text) => ({name: 'Pasted text', text});

  // What storage or an imported file holds, as far as it makes sense.
  const checked = (raw) => (Array.isArray(raw) ? raw : [])
    .filter((file) => file && typeof file.name === 'string' && typeof file.text === 'string')
    .slice(0, kMost).map(({name, text}) => ({name: name.slice(0, 200), text}));

  // A message as the model reads it: each text under its name and between fences that do not occur in it, then the words.
  function message(words, files) {
    const parts = (files || []).map(({name, text}) => {
      const longest = Math.max(2, ...(text.match(/`{3,}/g) || []).map((run) => run.length));
      const fence = '`'.repeat(longest + 1);
      return `${name}:\n${fence}\n${text.replace(/\n$/, '')}\n${fence}`;
    });
    return [...parts, words].filter((part) => part.trim() !== '').join('\n\n');
  }

  function size(text) {
    const lines = text.replace(/\n$/, '').split('\n').length;
    return `${text.length.toLocaleString('en')} characters, ${lines.toLocaleString('en')} ${lines === 1 ? 'line' : 'lines'}`;
  }

  // Folded; `buttons` stand beside it.
  function node({name, text}, ...buttons) {
    const body = h('pre', {tabindex: '0', role: 'region', 'aria-label': name});
    const fold = h('details', {class: 'fold file'}, h('summary', {}, h('b', {}, name), h('span', {class: 'quiet'}, ' ' + size(text))), body);
    fold.addEventListener('toggle', () => (body.textContent = fold.open ? text : ''));
    return h('div', {class: 'attachment'}, fold, ...buttons);
  }

  return {kMost, isLong, read, pasted, checked, message, node};
})();
