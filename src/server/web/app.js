// The page itself: which conversation is open, what the keys and buttons do.
const App = (() => {
  let chat = null;
  let models = [];
  let turns = new Map();  // node id -> Turn
  let fillSettings = () => {};

  const scroller = byId('scroller'), log = byId('log');

  const model = () => byId('model').value || (models[0] ? models[0].id : '');
  const nearEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
  const toEnd = () => (scroller.scrollTop = scroller.scrollHeight);

  // Changes the page and stays at its end when the reader is there.
  function keepingPlace(change) {
    const follow = nearEnd();
    change();
    if (follow) toEnd();
    byId('to-end').hidden = nearEnd();
  }

  const act = {
    keepingPlace,
    rerun: (node) => answer(chat, node.error && !node.content ? node : Store.addNode(chat, node.parent, 'assistant', '')),
    goOn: (node) => answer(chat, node, true),
    pick(node, step) {
      Answers.stop(chat.id);
      const parent = chat.nodes[node.parent];
      parent.active = Math.min(parent.children.length - 1, Math.max(0, parent.children.indexOf(node.id) + step));
      Store.saveChat(chat);
      showTurns();
    },
    edit(turn) {
      const key = 'edit.' + turn.node.id;
      turn.openEditor(Store.read(key, undefined), {
        keep: (text) => Store.write(key, text),
        close: Composer.focus,
        save(words) {
          Store.remove(key);
          Answers.stop(chat.id);
          ask(chat, turn.node.parent, {words, files: turn.node.files || []});
          Composer.focus();
        },
      });
    },
    cancel: () => stop(),
    openSettings,
  };

  function showTurns() {
    turns = new Map();
    const path = Store.path(chat);
    const busy = Answers.running(chat.id);
    for (const node of path) {
      const turn = new Turn(chat, node, act);
      turns.set(node.id, turn);
      if (busy && busy.node === node) turn.start();
    }
    log.replaceChildren(...[...turns.values()].map((turn) => turn.element));
    byId('welcome').hidden = path.length > 0;
    log.hidden = path.length === 0;
    byId('title').textContent = Store.titleOf(chat);
    document.title = chat.title ? chat.title + ' – Ingot' : 'Ingot';
    for (const id of ['rename', 'export-one', 'delete']) byId(id).disabled = path.length === 0;
    showBusy();
    showContext();
    toEnd();
    byId('to-end').hidden = true;
  }

  const showList = () => History.show(chat.id);
  const showBusy = () => Composer.setBusy(Boolean(Answers.running(chat.id)));
  const stop = () => Answers.stop(chat.id);

  // How much of the model's context the conversation fills, from the last answer's count.
  function showContext() {
    const last = Store.path(chat).filter((node) => node.stats && node.stats.prompt).pop();
    const context = (models.find((m) => m.id === model()) || {}).context;
    const used = last ? last.stats.prompt + (last.stats.completion || 0) : 0;
    byId('context').textContent = used && context ? `${numbers.format(used)} of ${numbers.format(context)} tokens of context` : '';
  }

  // Fills `node` of a conversation, which need not be the one on show, or goes on with it.
  function answer(owner, node, continues = false) {
    if (chat === owner) showTurns();
    showList();
    // The turn may be replaced while the answer comes: another conversation is opened and this one again.
    const onPage = (act) => {
      const turn = chat === owner ? turns.get(node.id) : null;
      if (turn) act(turn);
    };
    return Answers.run(owner, node, model(), {
      started: () => {
        onPage((t) => t.start());
        showBusy();
        keepingPlace(() => {});
      },
      reading: (progress) => onPage((t) => keepingPlace(() => t.showReading(progress))),
      grew: (rate) => onPage((t) => {
        t.grew();
        t.showRate(rate > 0 ? `${rate.toFixed(rate < 10 ? 1 : 0)} tok/s` : '');
      }),
      waiting: (text, now) => onPage((t) => keepingPlace(() => t.showWaiting(text, now))),
      finished: () => {
        onPage((t) => keepingPlace(() => t.finish()));
        showBusy();
        showContext();
        showList();
        Panel.poll();
        announce(node.error ? node.error.text : node.stopped ? 'Answer stopped' : 'Answer complete');
        if (!Answers.running(owner.id)) sendNext(owner, node);
      },
    }, continues);
  }

  // What was written while the answer came.
  function sendNext(owner, node) {
    if (node.error || node.stopped) return Composer.giveBack(owner.id);
    const message = Composer.next(owner.id);
    if (message) submit(message, owner);
  }

  function ask(owner, parent, {words, files}) {
    const question = Store.addNode(owner, parent, 'user', words);
    if (files.length > 0) question.files = files;
    if (!owner.named) {
      const first = Store.path(owner)[0];
      const line = (first.content.trim() || (first.files || [{name: ''}])[0].name).split('\n')[0];
      owner.title = line.length > 60 ? line.slice(0, 59).trimEnd() + '…' : line;
    }
    const waiting = Store.addNode(owner, question.id, 'assistant', '');
    Store.saveChat(owner);
    answer(owner, waiting);
  }

  function submit(message, owner = chat) {
    const path = Store.path(owner);
    ask(owner, path.length ? path[path.length - 1].id : 'root', message);
    if (owner !== chat) return;
    Store.write('open', chat.id);
    toEnd();
  }

  function show(next) {
    chat = next;
    Store.write('open', chat.id);
    fillSettings(chat.settings);
    showTurns();
    showList();
    Composer.open(chat.id);
    showBusy();
  }

  function open(id, node) {
    closeRail();
    if (chat.id !== id) {
      const busy = Answers.running(id);
      const found = busy ? busy.chat : Store.loadChat(id);
      if (!found) return toast('That conversation is not in this browser any more.');
      show(found);
    }
    const turn = node && turns.get(node);
    if (turn) turn.element.scrollIntoView({block: 'center'});
  }

  function startNew() {
    const draft = chat && Store.path(chat).length === 0 ? Composer.message() : null;
    const next = Store.newChat(Store.read('settings', {}));
    show(next);
    if (draft) Composer.set(draft.words, draft.files);
    closeRail();
    Composer.focus();
  }

  function rename() {
    const title = byId('title');
    const field = h('input', {type: 'text', class: 'rename', maxlength: '120', 'aria-label': 'Name of the conversation'});
    field.value = Store.titleOf(chat);
    let over = false;
    const end = (keep) => {
      if (over) return;
      over = true;
      if (keep && field.value.trim()) {
        Object.assign(chat, {title: field.value.trim(), named: true});
        Store.saveChat(chat);
      }
      field.replaceWith(title);
      title.textContent = Store.titleOf(chat);
      showList();
    };
    field.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.isComposing) end(true);
      else if (event.key === 'Escape') end(false);
      else return;
      event.stopPropagation();
      event.preventDefault();
      byId('rename').focus();
    });
    field.addEventListener('blur', () => end(true));
    title.replaceWith(field);
    field.select();
  }

  function removeChat() {
    const gone = chat;
    const draft = Composer.message();
    Answers.drop(gone.id);
    Store.deleteChat(gone.id);
    const next = Store.list().map((entry) => Store.loadChat(entry.id)).find(Boolean);
    show(next || Store.newChat(Store.read('settings', {})));
    toast('Conversation deleted.', 'Undo', () => {
      Store.saveChat(gone);
      show(gone);
      Composer.set(draft.words, draft.files);
    });
  }

  function download(name, text) {
    const address = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
    const anchor = h('a', {href: address, download: name});
    document.body.append(anchor);
    anchor.click();
    anchor.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  const fileName = (text) => (text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 40) || 'conversation') + '.json';

  async function importFile() {
    const [file] = byId('import-file').files;
    byId('import-file').value = '';
    if (!file) return;
    try {
      const chats = Store.imported(await file.text());
      const kept = chats.reverse().map((found) => Store.saveChat(found)).every(Boolean);
      show(chats[chats.length - 1]);
      toast(kept ? `Imported ${chats.length === 1 ? 'one conversation' : chats.length + ' conversations'}.` : 'Imported, but this browser has no room to keep it all.');
    } catch (error) {
      toast('Not imported: ' + error.message);
    }
  }

  function openSettings(focus) {
    fillSettings(chat.settings);
    byId('set-key').value = Store.read('key', '');
    byId('settings').showModal();
    byId(typeof focus === 'string' ? focus : 'set-system').focus();
  }

  const narrow = matchMedia('(max-width: 52rem)');
  function placeRail() {
    const open = byId('rail').classList.contains('open');
    byId('rail').inert = narrow.matches && !open;
    byId('main').inert = narrow.matches && open;
    byId('shade').hidden = !(narrow.matches && open);
    byId('menu').setAttribute('aria-expanded', String(open));
  }
  function openRail() {
    byId('rail').classList.add('open');
    placeRail();
    byId('new-chat').focus();
  }
  function closeRail() {
    const wasOpen = byId('rail').classList.contains('open');
    byId('rail').classList.remove('open');
    placeRail();
    if (wasOpen) byId('menu').focus();
  }

  const dark = matchMedia('(prefers-color-scheme: dark)');
  function applyTheme() {
    const theme = Store.read('theme', 'auto');
    const shown = theme === 'auto' ? (dark.matches ? 'dark' : 'light') : theme;
    document.documentElement.dataset.theme = shown;
    byId('theme').setAttribute('aria-label', shown === 'dark' ? 'Switch to light' : 'Switch to dark');
    byId('theme').textContent = shown === 'dark' ? 'Light' : 'Dark';
  }
  function toggleTheme() {
    const next = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    Store.write('theme', next === (dark.matches ? 'dark' : 'light') ? 'auto' : next);
    applyTheme();
  }

  async function loadModels() {
    try {
      models = await Api.models();
      Settings.useDefaults(await Api.chatSampling());
    } catch (error) {
      byId('model-name').textContent = error.kind === 'key' ? 'API key needed' : 'no model yet';
      if (error.kind === 'key') toast(error.message, 'Enter a key', () => openSettings('set-key'));
      return;
    }
    const chosen = Store.read('model', '');
    byId('model').replaceChildren(...models.map((m) => h('option', {value: m.id, selected: m.id === chosen}, m.id)));
    byId('model').hidden = models.length < 2;
    showModel();
  }
  function showModel() {
    const found = models.find((m) => m.id === model());
    byId('model-name').textContent = found ? found.id : 'no model';
    byId('model-name').hidden = models.length > 1;
    byId('welcome-model').textContent = found ? found.id : 'Ingot';
    byId('welcome-context').textContent = found && found.context ? `Reads up to ${numbers.format(found.context)} tokens.` : '';
    if (chat) showContext();
  }

  function onKey(event) {
    const dialog = byId('settings').open;
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement ? document.activeElement.tagName : '');
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      if (dialog) byId('settings').close();
      startNew();
    } else if (event.key === 'Escape' && !dialog) {
      if (byId('rail').classList.contains('open')) closeRail();
      else stop();
    } else if (event.key === '/' && !typing && !dialog && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      closeRail();
      Composer.focus();
    }
  }

  function editLast() {
    const mine = Store.path(chat).filter((node) => node.role === 'user').pop();
    if (mine) act.edit(turns.get(mine.id));
    return Boolean(mine);
  }

  function start() {
    applyTheme();
    Store.troubles(() => (byId('storage-note').hidden = false));
    Store.recover();
    fillSettings = Settings.mount((settings) => {
      chat.settings = settings;
      Store.write('settings', settings);
      if (Store.path(chat).length > 0) Store.saveChat(chat);
    });
    History.mount(open);
    Composer.mount({submit, stop, editLast});
    // One that was begun and never sent has a draft under its name, if nothing else.
    const last = Store.read('open', '') || newId();
    show(Store.loadChat(last) || Store.newChat(Store.read('settings', {}), last));
    placeRail();

    const click = {menu: openRail, shade: closeRail, 'new-chat': startNew, theme: toggleTheme, rename, delete: removeChat,
      'open-settings': openSettings, 'close-settings': () => byId('settings').close(),
      'export-one': () => download(fileName(Store.titleOf(chat)), Store.exported([chat])),
      'export-all': () => download('ingot-conversations.json', Store.exported(Store.list().map((e) => Store.loadChat(e.id)).filter(Boolean))),
      import: () => byId('import-file').click(), 'to-end': toEnd};
    for (const [id, perform] of Object.entries(click)) byId(id).addEventListener('click', () => perform());
    for (const button of document.querySelectorAll('.starter')) {
      button.addEventListener('click', () => {
        Composer.set(button.textContent);
        Composer.focus();
      });
    }
    byId('import-file').addEventListener('change', importFile);
    byId('model').addEventListener('change', () => {
      Store.write('model', model());
      showModel();
    });
    byId('set-key').addEventListener('change', () => {
      if (byId('set-key').value) Store.write('key', byId('set-key').value.trim());
      else Store.remove('key');
      loadModels();
      Panel.poll();
    });
    document.addEventListener('keydown', onKey);
    let follows = true;  // the reader is at the end, and stays there when something above or below takes room
    scroller.addEventListener('scroll', () => {
      follows = nearEnd();
      byId('to-end').hidden = follows;
    }, {passive: true});
    new ResizeObserver(() => follows && toEnd()).observe(scroller);
    narrow.addEventListener('change', placeRail);
    dark.addEventListener('change', applyTheme);
    addEventListener('pagehide', Answers.saveAll);
    addEventListener('beforeunload', (event) => Store.hasUnsaved() && event.preventDefault());
    addEventListener('storage', showList);

    Panel.start(loadModels);  // also when the server comes back: it may serve another model
    if (!narrow.matches) Composer.focus();
  }

  return {start};
})();

App.start();
