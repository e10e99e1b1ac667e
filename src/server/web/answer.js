// Asks the server for one answer and keeps the conversation's node up to date with it. Knows nothing of the page.
const Answers = (() => {
  const kMostRetries = 5;
  const kSaveEvery = 1500;  // ms
  const jobs = new Map();   // conversation id -> its running answer

  // The conversation above `node`, as the API wants it.
  function messagesFor(chat, node) {
    const messages = [];
    for (let at = chat.nodes[node.parent]; at.id !== 'root'; at = chat.nodes[at.parent]) {
      const content = at.role === 'assistant' ? splitThought(at).answer : at.content;
      if (content) messages.unshift({role: at.role, content});
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
    const {chat, node} = job;
    const begin = performance.now();
    let first = 0, last = 0, pieces = 0, saved = begin, usage = null;
    const measure = () => {
      const spent = (last - first) / 1000;
      const completion = usage ? usage.completion_tokens : pieces;
      node.stats = {first: first ? first - begin : 0, rate: spent > 0 && completion > 1 ? (completion - 1) / spent : 0, completion};
      if (usage) {
        node.stats.prompt = usage.prompt_tokens;
        const details = usage.prompt_tokens_details;
        if (details && Number.isFinite(details.cached_tokens)) node.stats.cached = details.cached_tokens;
      }
    };
    try {
      await Api.chat({model, messages: messagesFor(chat, node), ...Settings.parameters(chat.settings)}, job.controller.signal, (news) => {
        if (news.usage) usage = news.usage;
        if (news.finish) node.finish = news.finish;
        if (!news.text && !news.thought) return;
        last = performance.now();
        first = first || last;
        pieces++;
        if (news.thought) node.thought = (node.thought || '') + news.thought;
        node.content += news.text;
        if (last - saved > kSaveEvery) {
          saved = last;
          Store.saveChat(chat);
        }
        on.grew(pieces > 1 && last > first ? (pieces - 1) / ((last - first) / 1000) : 0);
      });
    } finally {
      if (pieces > 0 || usage) measure();
    }
  }

  // Fills `node`. `on` has started(), grew(tokens a second), waiting(text, now), finished(): never throws.
  async function run(chat, node, model, on) {
    stop(chat.id);
    const job = {chat, node, controller: new AbortController(), now: () => {}};
    jobs.set(chat.id, job);
    Object.assign(node, {content: '', model});
    for (const name of ['thought', 'error', 'stats', 'finish', 'stopped']) delete node[name];
    Store.saveChat(chat);
    on.started();
    try {
      for (let tries = 1;; tries++) {
        try {
          await attempt(job, model, on);
          break;
        } catch (error) {
          if (error.kind !== 'busy' || tries > kMostRetries) throw error;
          await waitForTurn(job, error, tries, on);
          on.started();
        }
      }
    } catch (error) {
      if (error.name === 'AbortError') node.stopped = true;
      else node.error = {kind: error.kind || 'broken', text: error.message};
    }
    if (jobs.get(chat.id) === job) jobs.delete(chat.id);
    Store.saveChat(chat);
    on.finished();
  }

  function stop(chatId) {
    const job = jobs.get(chatId);
    if (!job) return false;
    jobs.delete(chatId);
    job.controller.abort();
    job.now();
    return true;
  }

  const running = (chatId) => jobs.get(chatId);
  const saveAll = () => jobs.forEach((job) => Store.saveChat(job.chat));
  return {run, stop, running, saveAll};
})();
