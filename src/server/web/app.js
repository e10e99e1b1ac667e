// The page itself: which conversation is open, what the keys and buttons do.
const App = (() => {
  let chat = null;
  let models = [];
  let turns = new Map();  // node id -> Turn
  let fillSettings = () => {};

  const list = byId('chat-list'), scroller = byId('scroller'), log = byId('log');
  const input = byId('input'), send = byId('send');

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
    retry: (node) => answer(node),
    rerun: (node) => answer(node.error && !node.content ? node : Store.addNode(chat, node.parent, 'assistant', '')),
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
        close: () => input.focus(),
        save(text) {
          Store.remove(key);
          Answers.stop(chat.id);
          const question = Store.addNode(chat, turn.node.parent, 'user', text);
          answer(Store.addNode(chat, question.id, 'assistant', ''));
          input.focus();
        },
      });
    },
    cancel: () => Answers.stop(chat.id),
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

  function showList() {
    const entries = Store.list();
    list.replaceChildren(...entries.map((entry) => h('li', {}, h('button', {type: 'button', class: 'entry', title: entry.title,
      'aria-current': chat && entry.id === chat.id ? 'true' : null, onclick: () => {
        open(entry.id);
        closeRail();
      }}, entry.title))));
    byId('no-chats').hidden = entries.length > 0;
    byId('export-all').disabled = entries.length === 0;
  }

  function showBusy() {
    const busy = Boolean(chat && Answers.running(chat.id));
    send.textContent = busy ? 'Stop' : 'Send';
    send.classList.toggle('stop', busy);
    send.disabled = !busy && input.value.trim() === '';
  }

  // How much of the model's context the conversation fills, from the last answer's count.
  function showContext() {
    const last = Store.path(chat).filter((node) => node.stats && node.stats.prompt).pop();
    const context = (models.find((m) => m.id === model()) || {}).context;
    const used = last ? last.stats.prompt + (last.stats.completion || 0) : 0;
    byId('context').textContent = used && context ? `${numbers.format(used)} of ${numbers.format(context)} tokens of context` : '';
  }

  function answer(node) {
    const owner = chat;
    showTurns();
    showList();
    // The turn may be replaced while the answer comes: another conversation is opened and this one again.
    const turn = () => (chat === owner ? turns.get(node.id) : null);
    const onPage = (act) => {
      if (turn()) act(turn());
    };
    return Answers.run(owner, node, model(), {
      started: () => {
        onPage((t) => t.start());
        showBusy();
        keepingPlace(() => {});
      },
      grew: (rate) => onPage((t) => {
        t.grew();
        if (rate > 0) t.showRate(`${rate.toFixed(rate < 10 ? 1 : 0)} tok/s`);
      }),
      waiting: (text, now) => onPage((t) => keepingPlace(() => t.showWaiting(text, now))),
      finished: () => {
        onPage((t) => keepingPlace(() => t.finish()));
        showBusy();
        showContext();
        showList();
        Panel.poll();
        announce(node.error ? node.error.text : node.stopped ? 'Answer stopped' : 'Answer complete');
      },
    });
  }

  function submit() {
    const text = input.value;
    if (!text.trim() || Answers.running(chat.id)) return;
    const path = Store.path(chat);
    const parent = path.length ? path[path.length - 1].id : 'root';
    const question = Store.addNode(chat, parent, 'user', text);
    if (!chat.named) {
      const line = Store.path(chat)[0].content.trim().split('\n')[0];
      chat.title = line.length > 60 ? line.slice(0, 59).trimEnd() + '…' : line;
    }
    const waiting = Store.addNode(chat, question.id, 'assistant', '');
    Store.saveChat(chat);
    Store.write('open', chat.id);
    setDraft('');
    answer(waiting);
    toEnd();
  }

  function setDraft(text) {
    input.value = text;
    saveDraft();
    growTextarea(input);
    showBusy();
  }

  function saveDraft() {
    if (input.value) Store.write('draft.' + chat.id, input.value);
    else Store.remove('draft.' + chat.id);
  }

  function show(next) {
    chat = next;
    Store.write('open', chat.id);
    fillSettings(chat.settings);
    showTurns();
    showList();
    setDraft(Store.read('draft.' + chat.id, ''));
  }

  function open(id) {
    if (chat && chat.id === id) return;
    const busy = Answers.running(id);
    const found = busy ? busy.chat : Store.loadChat(id);
    if (found) show(found);
    else toast('That conversation is not in this browser any more.');
  }

  function startNew() {
    const draft = chat && Store.path(chat).length === 0 ? input.value : '';
    const next = Store.newChat(Store.read('settings', {}));
    if (draft) Store.write('draft.' + next.id, draft);
    show(next);
    closeRail();
    input.focus();
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
    const draft = input.value;
    Answers.stop(gone.id);
    Store.deleteChat(gone.id);
    const next = Store.list().map((entry) => Store.loadChat(entry.id)).find(Boolean);
    show(next || Store.newChat(Store.read('settings', {})));
    toast('Conversation deleted.', 'Undo', () => {
      Store.saveChat(gone);
      show(gone);
      setDraft(draft);
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
      else Answers.stop(chat.id);
    } else if (event.key === '/' && !typing && !dialog && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      closeRail();
      input.focus();
    }
  }

  function onInputKey(event) {
    if (event.isComposing) return;
    if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault();
      submit();
    } else if (event.key === 'ArrowUp' && input.value === '') {
      const mine = Store.path(chat).filter((node) => node.role === 'user').pop();
      if (mine && !Answers.running(chat.id)) {
        event.preventDefault();
        act.edit(turns.get(mine.id));
      }
    }
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
    show(Store.loadChat(Store.read('open', '')) || Store.newChat(Store.read('settings', {})));
    placeRail();

    const click = {menu: openRail, shade: closeRail, 'new-chat': startNew, theme: toggleTheme, rename, delete: removeChat,
      'open-settings': openSettings, 'close-settings': () => byId('settings').close(),
      'export-one': () => download(fileName(Store.titleOf(chat)), Store.exported([chat])),
      'export-all': () => download('ingot-conversations.json', Store.exported(Store.list().map((e) => Store.loadChat(e.id)).filter(Boolean))),
      import: () => byId('import-file').click(), 'to-end': toEnd,
      send: () => (Answers.running(chat.id) ? Answers.stop(chat.id) : submit())};
    for (const [id, perform] of Object.entries(click)) byId(id).addEventListener('click', () => perform());
    for (const button of document.querySelectorAll('.starter')) {
      button.addEventListener('click', () => {
        setDraft(button.textContent);
        input.focus();
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
    input.addEventListener('input', () => {
      growTextarea(input);
      saveDraft();
      showBusy();
    });
    input.addEventListener('keydown', onInputKey);
    document.addEventListener('keydown', onKey);
    scroller.addEventListener('scroll', () => (byId('to-end').hidden = nearEnd()), {passive: true});
    narrow.addEventListener('change', placeRail);
    dark.addEventListener('change', applyTheme);
    addEventListener('pagehide', Answers.saveAll);
    addEventListener('beforeunload', (event) => Store.hasUnsaved() && event.preventDefault());
    addEventListener('storage', showList);

    loadModels();
    Panel.start((reachable) => {
      if (reachable && models.length === 0) loadModels();
    });
    if (!narrow.matches) input.focus();
  }

  return {start};
})();

App.start();
