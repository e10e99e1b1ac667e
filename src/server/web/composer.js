// The field at the foot: words, the texts that go with them, and messages that wait until the answer is complete.
const Composer = (() => {
  const input = byId('input'), send = byId('send');
  const queues = new Map();  // conversation id -> messages that wait: [{words, files}]
  let chatId = '';
  let files = [];
  let busy = false;

  const queue = () => queues.get(chatId) || [];
  const isEmpty = () => input.value.trim() === '' && files.length === 0;

  function save() {
    const keep = (key, value, empty) => (empty ? Store.remove(key + chatId) : Store.write(key + chatId, value));
    keep('draft.', input.value, input.value === '');
    keep('files.', files, files.length === 0);
  }

  function show() {
    const name = busy ? 'Stop' : 'Send';
    if (send.textContent !== name) send.textContent = name;
    send.classList.toggle('stop', busy);
    send.disabled = !busy && isEmpty();
    byId('send-next').hidden = !busy || isEmpty();
    byId('enter-does').textContent = busy ? 'queues' : 'sends';
    byId('attached').hidden = files.length === 0;
    byId('queue').hidden = queue().length === 0;
  }

  function button(label, perform) {
    return h('button', {type: 'button', class: 'action', onclick: perform}, label);
  }

  function showFiles() {
    const without = (file) => set(input.value, files.filter((other) => other !== file));
    byId('attached').replaceChildren(...files.map((file) => Files.node(file,
      file.name === Files.pasted('').name ? button('As text', () => set(input.value + file.text, files.filter((other) => other !== file))) : null,
      h('button', {type: 'button', class: 'action', 'aria-label': `Remove ${file.name}`, onclick: () => without(file)}, '×'))));
  }

  function showQueue() {
    byId('queue').replaceChildren(...queue().map((message) => h('li', {}, h('span', {class: 'quiet'}, 'Next: '),
      h('span', {class: 'queued'}, message.words.trim() || message.files.map((file) => file.name).join(', ')),
      button('Edit', () => unqueue(message)))));
    show();
  }

  // The field as it is to be: words and the texts with them.
  function set(words, texts = []) {
    input.value = words;
    files = texts;
    save();
    showFiles();
    growTextarea(input);
    show();
  }

  function open(id) {
    chatId = id;
    set(Store.read('draft.' + id, ''), Files.checked(Store.read('files.' + id, [])));
    showQueue();
  }

  function take() {
    const message = {words: input.value, files};
    set('');
    return message;
  }

  function putBack(message) {
    set([message.words, input.value].filter((part) => part.trim()).join('\n\n'), [...message.files, ...files].slice(0, Files.kMost));
  }

  function unqueue(message) {
    queues.set(chatId, queue().filter((other) => other !== message));
    putBack(message);
    showQueue();
    input.focus();
  }

  function enqueue() {
    if (isEmpty()) return;
    queues.set(chatId, [...queue(), take()]);
    showQueue();
    announce('Queued: it is sent when the answer is complete');
  }

  // The next message that waits in a conversation, or undefined.
  function next(id) {
    const waiting = queues.get(id) || [];
    const message = waiting.shift();
    if (id === chatId) showQueue();
    return message;
  }

  // Nothing is sent after an answer that failed or was stopped: what waits goes back to where it was written.
  function giveBack(id) {
    const waiting = queues.get(id) || [];
    queues.delete(id);
    if (waiting.length === 0) return;
    const message = {words: waiting.map((one) => one.words).join('\n\n'), files: waiting.flatMap((one) => one.files)};
    if (id === chatId) {
      putBack(message);
      showQueue();
    } else {
      Store.write('draft.' + id, [message.words, Store.read('draft.' + id, '')].filter(Boolean).join('\n\n'));
      Store.write('files.' + id, [...message.files, ...Files.checked(Store.read('files.' + id, []))]);
    }
  }

  async function attach(chosen) {
    for (const file of chosen) {
      if (files.length >= Files.kMost) {
        toast(`At most ${Files.kMost} texts can go with a message.`);
        break;
      }
      try {
        const text = await Files.read(file);
        set(input.value, [...files, text]);
      } catch (error) {
        toast(error.message);
      }
    }
    input.focus();
  }

  function onPaste(event) {
    const data = event.clipboardData;
    const text = data.getData('text/plain');
    if (data.files.length > 0 && !text) {
      event.preventDefault();
      attach([...data.files]);
    } else if (Files.isLong(text) && files.length < Files.kMost) {
      event.preventDefault();
      set(input.value, [...files, Files.pasted(text)]);
    }
  }

  // `on` has submit(message), stop(), editLast().
  function mount(on) {
    const enter = () => (busy ? enqueue() : isEmpty() || on.submit(take()));
    input.addEventListener('input', () => {
      growTextarea(input);
      save();
      show();
    });
    input.addEventListener('paste', onPaste);
    input.addEventListener('keydown', (event) => {
      if (event.isComposing) return;
      if (event.key === 'Enter' && !event.shiftKey) {
        event.preventDefault();
        enter();
      } else if (event.key === 'ArrowUp' && input.value === '' && !busy && on.editLast()) {
        event.preventDefault();
      }
    });
    send.addEventListener('click', () => (busy ? on.stop() : enter()));
    byId('send-next').addEventListener('click', () => {
      enqueue();
      input.focus();
    });
    byId('attach').addEventListener('click', () => byId('attach-file').click());
    byId('attach-file').addEventListener('change', () => {
      attach([...byId('attach-file').files]);
      byId('attach-file').value = '';
    });
    byId('main').addEventListener('dragover', (event) => {
      if (![...event.dataTransfer.types].includes('Files')) return;
      event.preventDefault();
      byId('composer').classList.add('drop');
    });
    for (const name of ['dragleave', 'drop']) byId('main').addEventListener(name, () => byId('composer').classList.remove('drop'));
    byId('main').addEventListener('drop', (event) => {
      if (event.dataTransfer.files.length === 0) return;
      event.preventDefault();
      attach([...event.dataTransfer.files]);
    });
    addEventListener('pagehide', () => [...queues.keys()].forEach(giveBack));
  }

  return {mount, open, set, next, giveBack, words: () => input.value, message: () => ({words: input.value, files}), focus: () => input.focus(),
    setBusy: (now) => {
      busy = now;
      show();
    }};
})();
