// The server this page came from: OpenAI's chat API, its list of models, its metrics.
class ApiError extends Error {
  // kind: offline, key, busy, loading, context, refused, broken
  constructor(kind, text, retryAfter = 0) {
    super(text);
    this.kind = kind;
    this.retryAfter = retryAfter;  // seconds; 0: not said
  }
}

const Api = (() => {
  function headers(extra = {}) {
    const key = Store.read('key', '');
    return key ? {...extra, Authorization: 'Bearer ' + key} : extra;
  }

  async function request(path, options = {}) {
    let response;
    try {
      response = await fetch(path, {...options, cache: 'no-store', ...options, headers: headers(options.headers), credentials: 'same-origin'});
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ApiError('offline', 'The server cannot be reached.');
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }

  async function refusal(response) {
    let detail = '', code = '';
    try {
      const body = await response.json();
      const error = body.error || body;
      detail = String(error.message || body.detail || '').slice(0, 2000);
      code = String(error.code || '');
    } catch {
      detail = '';
    }
    if (response.status === 401 || response.status === 403) {
      return new ApiError('key', 'The server wants an API key' + (Store.read('key', '') ? ': the one in the settings was refused.' : '.'));
    }
    if (code === 'loading' || detail === 'loading') return new ApiError('loading', 'The model is still loading.', 1);
    if (response.status === 503 || response.status === 429) {
      return new ApiError('busy', detail || 'The server is busy.', Number(response.headers.get('Retry-After')) || 0);
    }
    if ([400, 413].includes(response.status) && (code === 'context_length_exceeded' || /context|max_model_len|too long/i.test(detail))) {
      return new ApiError('context', detail || 'The conversation is longer than the model can read.');
    }
    return new ApiError('refused', detail || `The server answered ${response.status} ${response.statusText}`.trim() + '.');
  }

  // One data line of an event stream after the other, until [DONE] or the end.
  async function* events(body) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let rest = '';
    try {
      for (;;) {
        const {done, value} = await reader.read();
        rest += done ? decoder.decode() : decoder.decode(value, {stream: true});
        const lines = rest.split(/\r?\n/);
        rest = done ? '' : lines.pop();
        for (const line of lines) {
          if (!line.startsWith('data:')) continue;
          const data = line.slice(5).trim();
          if (data === '[DONE]') return;
          yield JSON.parse(data);
        }
        if (done) return;
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  // Streams one answer. `got({text, thought, calls, finish, usage, progress})` is called with what is new.
  async function chat(body, signal, got) {
    const response = await request('v1/chat/completions', {
      method: 'POST', headers: {'Content-Type': 'application/json'}, signal,
      body: JSON.stringify({...body, stream: true, stream_options: {include_usage: true}, return_progress: true}),
    });
    let finished = false;
    try {
      for await (const event of events(response.body)) {
        if (event.error) throw new ApiError('broken', String(event.error.message || 'The server could not finish.').slice(0, 2000));
        const choice = (event.choices || [])[0] || {};
        const delta = choice.delta || {};
        const news = {text: delta.content || '', thought: delta.reasoning_content || delta.reasoning || '',
          calls: delta.tool_calls || [], finish: choice.finish_reason || '', usage: event.usage || null, progress: event.prompt_progress || null};
        finished = finished || news.finish !== '';
        got(news);
      }
    } catch (error) {
      if (error instanceof ApiError || error.name === 'AbortError') throw error;
      throw new ApiError('broken', 'The connection broke in the middle of the answer.');
    }
    if (!finished) throw new ApiError('broken', 'The answer ended early: the server closed the connection.');
  }

  // A file that belongs to the page; its address changes with its text.
  const file = async (path) => (await request(path, {cache: 'default'})).text();

  // How much of the model is loaded, 0 to 1; null: all of it, the server is ready. Other servers need not know /health.
  async function loading() {
    let response;
    try {
      response = await fetch('health', {cache: 'no-store', headers: headers()});
    } catch {
      throw new ApiError('offline', 'The server cannot be reached.');
    }
    if (response.status !== 503) return null;
    const body = await response.json().catch(() => ({}));
    return body.status === 'loading' ? Number(body.progress) || 0 : null;
  }

  async function models() {
    const {data} = await (await request('v1/models')).json();
    return (Array.isArray(data) ? data : []).map((m) => ({id: String(m.id), context: Number(m.max_model_len) || 0}));
  }

  // How the model wants to be sampled where nobody says otherwise: name -> number. Other servers do not tell.
  async function chatSampling() {
    try {
      return (await (await request('props')).json()).chat_sampling || {};
    } catch {
      return {};
    }
  }

  // Sums over all labels of the samples in Prometheus' text format: name -> value.
  async function metrics() {
    const text = await (await request('metrics')).text();
    const sums = new Map();
    for (const line of text.split('\n')) {
      if (line === '' || line.startsWith('#')) continue;
      const name = line.split(/[{ ]/, 1)[0];
      const value = Number(line.slice(Math.max(line.lastIndexOf('}') + 1, name.length)).trim().split(/\s+/)[0]);
      if (Number.isFinite(value)) sums.set(name, (sums.get(name) || 0) + value);
    }
    return sums;
  }

  return {chat, file, loading, models, chatSampling, metrics};
})();
