// The server's state every two seconds while someone can see it: from its metrics, and until it is ready from /health.
const Panel = (() => {
  const kSeconds = 2;
  const kPoints = 60;
  const rates = [];
  let previous = null;
  let timer = 0;
  let ready = false;  // the model was loaded when we last asked, and the server answered since
  let onReady = () => {};

  const percent = (share) => (share > 0 && share < 0.01 ? '<1' : Math.round(share * 100)) + ' %';

  function show(id, text, hot = false) {
    byId(id).textContent = text;
    byId(id).classList.toggle('hot', hot);
  }

  function draw() {
    const top = Math.max(1, ...rates);
    const x = (i) => (100 - (rates.length - 1 - i) * (100 / (kPoints - 1))).toFixed(2);
    const y = (rate) => (27 - (rate / top) * 25).toFixed(2);
    const points = rates.map((rate, i) => x(i) + ',' + y(rate));
    byId('spark-line').setAttribute('points', points.join(' '));
    byId('spark-fill').setAttribute('points', points.length ? `${x(0)},28 ${points.join(' ')} 100,28` : '');
    byId('spark-top').textContent = top > 1 ? Math.round(top) + ' tok/s' : '';
    byId('spark').setAttribute('aria-label', `Throughput of the last two minutes, now ${Math.round(rates[rates.length - 1] || 0)}, highest ${Math.round(Math.max(0, ...rates))} tokens a second`);
  }

  function update(sums) {
    const value = (name) => sums.get('vllm:' + name) ?? sums.get('vllm:' + name + '_total') ?? 0;
    const now = performance.now();
    const tokens = value('generation_tokens');
    if (previous && tokens >= previous.tokens) {
      rates.push((tokens - previous.tokens) / ((now - previous.at) / 1000));
      if (rates.length > kPoints) rates.shift();
    }
    previous = {tokens, at: now};
    const rate = rates[rates.length - 1] || 0;
    const running = value('num_requests_running');
    const waiting = value('num_requests_waiting');
    const used = value('kv_cache_usage_perc');
    const queries = value('prefix_cache_queries');
    show('m-running', String(running), running > 0);
    show('m-waiting', String(waiting), waiting > 0);
    show('m-kv', percent(used));
    show('m-hits', queries > 0 ? percent(value('prefix_cache_hits') / queries) : '–');
    show('m-rate', rate >= 10 ? String(Math.round(rate)) : rate > 0 ? rate.toFixed(1) : '–', rate > 0);
    byId('kv-bar').value = used;
    draw();
    state(running > 0 ? 'working' : 'idle', running > 0 ? `${running} running` : 'idle');
  }

  function state(name, text) {
    byId('state').dataset.state = name;
    if (byId('state-text').textContent !== text) byId('state-text').textContent = text;
  }

  // A line under the header that stays while it is true; `share`: how far it is, 0 to 1.
  function notice(text, share) {
    byId('server-note').hidden = text === '';
    if (byId('server-note-text').textContent !== text) byId('server-note-text').textContent = text;
    byId('server-progress').hidden = share === undefined;
    if (share !== undefined) byId('server-progress').value = share;
  }

  async function look() {
    if (!ready) {
      const share = await Api.loading();
      if (share !== null) {
        state('loading', `loading ${Math.floor(share * 100)} %`);
        notice('The model is loading. What you send waits for it.', share);
        return;
      }
      ready = true;
      onReady();
    }
    notice('');
    update(await Api.metrics());
    byId('panel-note').textContent = '';
  }

  async function poll() {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      await look();
    } catch (error) {
      previous = null;
      const gone = error.kind === 'offline';
      if (gone) ready = false;
      state(gone ? 'gone' : 'unknown', gone ? 'server gone' : 'no metrics');
      notice(gone ? 'The server cannot be reached. This page goes on trying; what you write is kept.' : '');
      byId('panel-note').textContent = gone ? '' : error.message;
    }
    clearTimeout(timer);
    timer = setTimeout(poll, ready ? kSeconds * 1000 : kSeconds * 500);
  }

  function start(whenReady) {
    onReady = whenReady;
    document.addEventListener('visibilitychange', () => {
      previous = null;
      poll();
    });
    poll();
  }

  return {start, poll};
})();
