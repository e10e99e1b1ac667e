// Calls of tools in an answer, folded: name and arguments.
const Calls = (() => {
  // Adds what a chunk of the stream brings to `calls`.
  function grow(calls, deltas) {
    for (const delta of deltas) {
      const index = Number.isInteger(delta.index) ? delta.index : calls.length;
      if (index > calls.length || index < 0) continue;
      const call = calls[index] || (calls[index] = {id: '', name: '', arguments: ''});
      const given = delta.function || {};
      if (delta.id) call.id = String(delta.id);
      if (given.name) call.name += given.name;
      if (given.arguments) call.arguments += given.arguments;
    }
  }

  const checked = (raw) => (Array.isArray(raw) ? raw : []).filter((call) => call && typeof call.name === 'string')
    .map((call) => ({id: String(call.id || ''), name: call.name, arguments: String(call.arguments || '')}));

  // As the API wants them back.
  const replayed = (calls) => calls.map((call) => ({id: call.id, type: 'function', function: {name: call.name, arguments: call.arguments}}));

  function pretty(text) {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;  // not all of it has come
    }
  }

  const node = (call) => h('details', {class: 'fold call'}, h('summary', {}, 'Calls ', h('b', {}, call.name)),
    h('pre', {tabindex: '0', role: 'region', 'aria-label': 'Arguments of ' + call.name}, pretty(call.arguments)));

  return {grow, checked, replayed, node};
})();
