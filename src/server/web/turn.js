// One message on the page: its text, what was measured, what can be done with it.
const numbers = new Intl.NumberFormat('en');
const seconds = (ms) => (ms < 1000 ? Math.round(ms) + ' ms' : (ms / 1000).toFixed(ms < 10000 ? 2 : 1) + ' s');

// A model that reasons aloud begins with <think>; what it says there is shown folded.
function splitThought(node) {
  if (node.thought) return {thought: node.thought, answer: node.content, thinking: node.content === ''};
  const begin = /^\s*<think>/.exec(node.content);
  if (!begin) return {thought: '', answer: node.content, thinking: false};
  const end = node.content.indexOf('</think>');
  if (end < 0) return {thought: node.content.slice(begin[0].length), answer: '', thinking: true};
  return {thought: node.content.slice(begin[0].length, end), answer: node.content.slice(end + 8).replace(/^\s+/, ''), thinking: false};
}

class Turn {
  // `act` has edit(node), rerun(node), goOn(node), pick(node, step), cancel(), openSettings().
  constructor(chat, node, act) {
    Object.assign(this, {chat, node, act, frame: 0, rest: 0, streaming: false});
    const mine = node.role === 'user';
    this.text = h('div', {class: mine ? 'text' : 'text answer'});
    this.foot = h('div', {class: 'foot'});
    this.element = h('article', {class: 'turn ' + node.role, 'data-id': node.id, 'aria-label': mine ? 'You' : 'Answer'},
      h('h2', {class: 'who'}, mine ? 'You' : 'Ingot'), h('div', {class: 'said'}, this.text, this.foot));
    if (mine) {
      this.showText();
    } else {
      this.thoughtText = h('div', {class: 'thought-text'});
      this.thoughtLabel = h('summary', {}, 'Thought');
      this.thought = h('details', {class: 'fold thought', hidden: true}, this.thoughtLabel, this.thoughtText);
      this.body = h('div', {class: 'markdown'});
      this.calls = h('div', {class: 'calls'});
      this.text.append(this.thought, this.body, this.calls);
      this.view = new Markdown.View(this.body);
      this.draw(true);
    }
    this.refresh();
  }

  // The words of a question, and the texts that went with it.
  showText() {
    this.text.replaceChildren(...(this.node.files || []).map((file) => Files.node(file)), h('div', {class: 'words'}, this.node.content));
  }

  draw(done) {
    const {thought, answer, thinking} = splitThought(this.node);
    this.thought.hidden = thought.trim() === '';
    if (!this.thought.hidden) {
      this.thoughtLabel.textContent = thinking && !done ? 'Thinking…' : 'Thought';
      this.thoughtText.textContent = thought.trim();
    }
    // An answer that was asked for as JSON is not Markdown.
    this.view.update(this.node.json && answer ? '```json\n' + answer + (done ? '\n```' : '') : answer, done);
    if (this.node.calls || this.calls.firstChild) this.drawCalls();
  }

  // What a reader has unfolded stays so while more of it comes.
  drawCalls() {
    const open = [...this.calls.children].map((fold) => fold.open);
    this.calls.replaceChildren(...(this.node.calls || []).map(Calls.node));
    [...this.calls.children].forEach((fold, i) => (fold.open = Boolean(open[i])));
  }

  // Shows what the node has by now. Drawing takes at most about a fifth of the time, however long the last block is.
  grew() {
    if (this.frame) return;
    this.frame = setTimeout(() => requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.streaming) return;
      const begin = performance.now();
      this.act.keepingPlace(() => this.draw(false));
      this.rest = Math.min(400, (performance.now() - begin) * 4);
    }), this.rest);
  }

  start() {
    this.streaming = true;
    this.element.setAttribute('aria-busy', 'true');
    this.element.classList.add('streaming');
    this.view.reset();
    this.draw(false);
    this.refresh();
  }

  finish() {
    this.streaming = false;
    this.element.removeAttribute('aria-busy');
    this.element.classList.remove('streaming');
    this.view.reset();
    this.draw(true);
    this.refresh();
  }

  refresh() {
    this.foot.replaceChildren(...[this.errorNode(), this.streaming ? null : this.statsNode(), this.actionsNode()].filter(Boolean));
  }

  // Tokens while they come, from the pieces counted so far; '': too few to tell.
  showRate(text) {
    if (!this.rate) this.rate = h('span', {class: 'stat hot'});
    if (!this.rate.isConnected) this.foot.replaceChildren(this.rate);
    this.rate.textContent = text;
  }

  // How much of the conversation the model has read, until it begins to answer.
  showReading({processed, total}) {
    if (!this.reading || !this.reading.isConnected) {
      this.reading = h('div', {class: 'reading', role: 'status'}, h('span'), h('progress', {max: 1, 'aria-label': 'Read so far'}));
      this.foot.replaceChildren(this.reading);
    }
    this.reading.firstChild.textContent = `Read ${numbers.format(processed)} of ${numbers.format(total)} tokens`;
    this.reading.lastChild.value = total > 0 ? processed / total : 0;
  }

  errorNode() {
    const error = this.node.error;
    if (!error || this.streaming) return null;
    const box = h('div', {class: 'error', role: 'alert'}, h('p', {}, error.text));
    const advice = {
      offline: 'Your message is kept. Try again when the server is back.',
      broken: 'What arrived is kept.',
      context: 'Edit an earlier message, lower “Max tokens”, or start a new conversation.',
    }[error.kind];
    if (advice) box.append(h('p', {class: 'advice'}, advice));
    if (error.kind === 'key') box.append(h('p', {}, h('button', {type: 'button', class: 'action strong', onclick: () => this.act.openSettings('set-key')}, 'Enter a key')));
    return box;
  }

  // The countdown while the server is busy.
  showWaiting(text, now) {
    this.foot.replaceChildren(h('div', {class: 'error', role: 'status'}, h('p', {}, text),
      h('p', {}, h('button', {type: 'button', class: 'action strong', onclick: now}, 'Try now'),
        h('button', {type: 'button', class: 'action', onclick: () => this.act.cancel()}, 'Cancel'))));
  }

  statsNode() {
    const s = this.node.stats;
    const ends = {length: 'token limit reached', timeout: 'time limit reached', error: 'failed'}[this.node.finish];
    const end = this.node.stopped ? 'stopped' : ends;
    if (!s && !end) return null;
    const line = h('div', {class: 'stats'});
    const add = (name, value, unit) => line.append(h('span', {class: 'stat', 'data-stat': name}, h('b', {}, value), ' ' + unit));
    if (s) {
      if (s.rate > 0) add('rate', s.rate >= 100 ? String(Math.round(s.rate)) : s.rate.toFixed(1), 'tok/s');
      if (s.first > 0) add('first', seconds(s.first), 'to first token');
      if (s.completion >= 0) add('tokens', numbers.format(s.completion), s.completion === 1 ? 'token' : 'tokens');
      if (s.prompt > 0 && s.cached >= 0) add('cached', `${numbers.format(s.cached)} of ${numbers.format(s.prompt)}`, 'prompt tokens cached');
      if (s.guessed > 0) add('guessed', numbers.format(s.guessed), 'guessed right');
      if (s.prompt > 0) line.append(this.barNode(s));
    }
    if (end) line.append(h('span', {class: 'stat end'}, end));
    return line;
  }

  // Prompt tokens from the cache, prompt tokens computed, tokens generated: to scale.
  barNode(s) {
    const total = s.prompt + Math.max(0, s.completion || 0);
    const cached = Math.max(0, s.cached || 0);
    const parts = [['cached', cached], ['fresh', s.prompt - cached], ['made', total - s.prompt]];
    const bar = h('span', {class: 'bar', 'aria-hidden': 'true'});
    for (const [name, count] of parts) {
      const part = h('i', {class: name});
      part.style.flexGrow = String(count);
      bar.append(part);
    }
    bar.title = `${cached} cached, ${s.prompt - cached} read, ${total - s.prompt} generated`;
    return bar;
  }

  actionsNode() {
    if (this.streaming) return null;
    const {node, act} = this;
    const mine = node.role === 'user';
    const row = h('div', {class: 'actions'});
    const siblings = this.chat.nodes[node.parent].children;
    if (siblings.length > 1) {
      const at = siblings.indexOf(node.id);
      const move = (step, label, sign, possible) => h('button', {type: 'button', class: 'action', 'aria-label': label, disabled: !possible,
        onclick: () => act.pick(node, step)}, sign);
      row.append(h('span', {class: 'versions'}, move(-1, 'Earlier version', '‹', at > 0),
        h('span', {}, `${at + 1}/${siblings.length}`), move(1, 'Later version', '›', at + 1 < siblings.length)));
    }
    if (node.content) row.append(copyButton('Copy', () => (mine ? node.content : splitThought(node).answer)));
    const add = (label, perform, strong) => row.append(h('button', {type: 'button', class: strong ? 'action strong' : 'action', onclick: perform}, label));
    if (mine) add('Edit', () => act.edit(this));
    else if (this.canGoOn()) add('Continue', () => act.goOn(node), true);
    if (!mine) add('Try again', () => act.rerun(node), Boolean(node.error));
    return row;
  }

  // There is a part of an answer, and nothing below it yet.
  canGoOn() {
    const {node} = this;
    const cut = node.stopped || node.finish === 'length' || (node.error && ['broken', 'offline'].includes(node.error.kind));
    return Boolean(cut && splitThought(node).answer && !(node.calls || []).length && node.children.length === 0);
  }

  // Turns the message into a text field. What was typed there survives closing it and reloading the page.
  openEditor(draft, {save, keep, close}) {
    const area = h('textarea', {class: 'editor', rows: '3', 'aria-label': 'Edit your message'});
    area.value = draft ?? this.node.content;
    const done = () => {
      this.showText();
      this.refresh();
      close();
    };
    const send = () => area.value.trim() && save(area.value);
    area.addEventListener('input', () => {
      growTextarea(area);
      keep(area.value);
    });
    area.addEventListener('keydown', (event) => {
      if (event.isComposing) return;
      if (event.key === 'Enter' && !event.shiftKey) {
        event.preventDefault();
        send();
      } else if (event.key === 'Escape') {
        event.stopPropagation();
        done();
      }
    });
    this.text.replaceChildren(...(this.node.files || []).map((file) => Files.node(file)), area);
    this.foot.replaceChildren(h('div', {class: 'actions shown'},
      h('button', {type: 'button', class: 'action strong', onclick: send}, 'Send again'),
      h('button', {type: 'button', class: 'action', onclick: done}, 'Cancel')));
    growTextarea(area);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}
