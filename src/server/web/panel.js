// The server's state, read from its metrics every two seconds while someone can see it.
const Panel = (() => {
  const kSeconds = 2;
  const kPoints = 60;
  const rates = [];
  let previous = null;
  let timer = 0;
  let onReachable = () => {};

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
    show('m-rate', rate >= 10 ? String(Math.round(rate)) : rate.toFixed(1), rate > 0);
    byId('kv-bar').value = used;
    draw();
    state(running > 0 ? 'working' : 'idle', running > 0 ? `${running} running` : 'idle');
  }

  function state(name, text) {
    byId('state').dataset.state = name;
    if (byId('state-text').textContent !== text) byId('state-text').textContent = text;
  }

  async function poll() {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      update(await Api.metrics());
      byId('panel-note').textContent = '';
      onReachable(true);
    } catch (error) {
      previous = null;
      const gone = error.kind === 'offline';
      state(gone ? 'gone' : 'unknown', gone ? 'server gone' : 'no metrics');
      byId('panel-note').textContent = gone ? 'The server cannot be reached.' : error.message;
      if (gone) onReachable(false);
    }
    clearTimeout(timer);
    timer = setTimeout(poll, kSeconds * 1000);
  }

  function start(reachable) {
    onReachable = reachable;
    document.addEventListener('visibilitychange', () => {
      previous = null;
      poll();
    });
    poll();
  }

  return {start, poll};
})();
