// Asks the server for one answer and keeps the conversation's node up to date with it. Knows nothing of the page.
const Answers = (() => {
  const kMostRetries = 5;
  const kSaveEvery = 1500;  // ms
  const kFewest = 8;        // tokens before a speed means anything
  const jobs = new Map();   // conversation id -> its running answer

  function messageOf(node) {
    if (node.role === 'user') return {role: 'user', content: Files.message(node.content, node.files)};
    const content = splitThought(node).answer;
    if (!node.calls || node.calls.length === 0) return {role: 'assistant', content};
    return {role: 'assistant', content: content || null, tool_calls: Calls.replayed(node.calls)};
  }

  // The conversation above `node`, as the API wants it; with `node` itself when that is to be gone on with.
  function messagesFor(chat, node, continues) {
    const messages = continues ? [messageOf(node)] : [];
    for (let at = chat.nodes[node.parent]; at.id !== 'root'; at = chat.nodes[at.parent]) {
      const message = messageOf(at);
      if (message.content || message.tool_calls) messages.unshift(message);
    }
    if (chat.settings.system) messages.unshift({role: 'system', content: chat.settings.system});
    return messages;
  }

  // Waits, but ends at once when `now` of the job is called or it is stopped.
  function pause(job, ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      job.now = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async function waitForTurn(job, error, attempt, on) {
    const wait = Math.min(60, error.retryAfter || 2 ** attempt);
    const until = Date.now() + wait * 1000;
    let skipped = false;
    while (Date.now() < until && !skipped && !job.controller.signal.aborted) {
      on.waiting(`${error.message} Trying again in ${Math.ceil((until - Date.now()) / 1000)} s.`, () => {
        skipped = true;
        job.now();
      });
      await pause(job, Math.min(1000, until - Date.now()));
    }
    if (job.controller.signal.aborted) throw new DOMException('stopped', 'AbortError');
  }

  async function attempt(job, model, on) {
    const {chat, node, continues} = job;
    const begin = performance.now();
    const before = continues && node.stats ? node.stats.completion || 0 : 0;
    let first = 0, last = 0, pieces = 0, saved = begin, usage = null;
    const speed = (tokens) => (tokens >= kFewest && last > first ? (tokens - 1) / ((last - first) / 1000) : 0);
    job.measure = () => {
      if (pieces === 0 && !usage) return;
      const made = usage ? usage.completion_tokens : pieces;
      node.stats = {first: first ? first - begin : 0, rate: speed(made), completion: before + made};
      if (usage) {
        node.stats.prompt = usage.prompt_tokens - before;
        const details = usage.prompt_tokens_details;
        if (details && Number.isFinite(details.cached_tokens)) node.stats.cached = Math.min(details.cached_tokens, node.stats.prompt);
        const guesses = usage.completion_tokens_details;
        if (guesses && guesses.accepted_prediction_tokens > 0) node.stats.guessed = guesses.accepted_prediction_tokens;
      }
    };
    const request = {model, messages: messagesFor(chat, node, continues), ...Settings.parameters(chat.settings)};
    if (continues) Object.assign(request, {continue_final_message: true, add_generation_prompt: false});
    node.json = Boolean(request.response_format);
    try {
      await Api.chat(request, job.controller.signal, (news) => {
        if (job.ended) return;
        if (news.usage) usage = news.usage;
        if (news.finish) node.finish = news.finish;
        if (news.progress && !first) on.reading(news.progress);
        if (!news.text && !news.thought && news.calls.length === 0) return;
        last = performance.now();
        first = first || last;
        pieces++;
        if (news.thought) node.thought = (node.thought || '') + news.thought;
        if (news.calls.length > 0) Calls.grow(node.calls || (node.calls = []), news.calls);
        node.content += news.text;
        if (last - saved > kSaveEvery) {
          saved = last;
          Store.saveChat(chat);
        }
        on.grew(speed(pieces));
      });
    } finally {
      if (!job.ended) job.measure();
    }
  }

  // Fills `node`, or goes on with what it has. `on` has started(), reading({processed, total}), grew(tokens a second),
  // waiting(text, now), finished(): never throws.
  async function run(chat, node, model, on, continues = false) {
    stop(chat.id);
    const job = {chat, node, continues, controller: new AbortController(), ended: false, now: () => {}, measure: () => {}, finished: on.finished};
    jobs.set(chat.id, job);
    node.model = model;
    for (const name of ['error', 'finish', 'stopped']) delete node[name];
    if (!continues) {
      node.content = '';
      for (const name of ['thought', 'calls', 'stats']) delete node[name];
    }
    Store.saveChat(chat);
    on.started();
    try {
      for (let tries = 1;; tries++) {
        try {
          await attempt(job, model, on);
          break;
        } catch (error) {
          const waits = error.kind === 'loading' || (error.kind === 'busy' && tries <= kMostRetries);
          if (!waits) throw error;
          await waitForTurn(job, error, tries, on);
          on.started();
        }
      }
    } catch (error) {
      if (!job.ended) node.error = {kind: error.kind || 'broken', text: error.message};
    }
    if (!job.ended) end(job);
  }

  function end(job) {
    job.ended = true;
    jobs.delete(job.chat.id);
    Store.saveChat(job.chat);
    job.finished();
  }

  // Nothing of the answer is taken from here on; the job, or null.
  function cut(chatId) {
    const job = jobs.get(chatId);
    if (!job) return null;
    job.ended = true;
    jobs.delete(chatId);
    job.controller.abort();
    job.now();
    return job;
  }

  // Whoever stops an answer need not wait until the network has noticed.
  function stop(chatId) {
    const job = cut(chatId);
    if (!job) return;
    job.node.stopped = true;
    job.measure();
    end(job);
  }

  const running = (chatId) => jobs.get(chatId);
  const saveAll = () => jobs.forEach((job) => Store.saveChat(job.chat));
  // `drop` is for a conversation that is deleted: nothing of it is saved any more.
  return {run, stop, drop: cut, running, saveAll};
})();
