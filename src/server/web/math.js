// Formulas between $…$, $$…$$, \(…\) and \[…\], set by KaTeX, which is fetched when the first of them is to be shown. Until
// then, and where it cannot be set, a formula stands there as it was written.
const Maths = (() => {
  const kVersion = '@KATEX@';  // of katex.js and katex.css; empty: this build has none
  const kLongest = 5000;       // characters of a formula
  const kKept = 300;           // formulas that need not be set again
  const kPairs = [['\\(', '\\)', false], ['\\[', '\\]', true], ['$$', '$$', true], ['$', '$', false]];
  // With macros of its own a short formula could keep the browser busy for ever; and it is no place for links and pictures.
  const kRefused = /\\(?:[egx]?def|(?:re)?newcommand|providecommand|let|futurelet|global|long|href|url|includegraphics|html[A-Z]\w*)(?![a-zA-Z])/;
  const kept = new Map();     // 'd' or 'i' and the formula -> what KaTeX made of it
  const waiting = new Set();  // formulas that are on the page and not set yet
  let loading = null;

  // Where `close` stands at or behind `from`, within one formula's length; -1: nowhere. A backslash guards what follows it.
  function closing(text, from, close) {
    const limit = Math.min(text.length, from + kLongest);
    for (let i = from; i < limit; i++) {
      if (text.startsWith(close, i)) return i;
      if (text[i] === '\\') i++;
    }
    return -1;
  }

  // Prices and the names of variables have dollars too: a formula touches both of its dollars, and if there are spaces in
  // it there are also signs that prose between two prices does not have.
  function isFormula(text, begin, end) {
    const tex = text.slice(begin + 1, end);
    if (/^\s|\s$/.test(tex) || /\w/.test(text[begin - 1] || '') || /\w/.test(text[end + 1] || '')) return false;
    if (!/\s/.test(tex) || /[\\^_={}<>]/.test(tex)) return true;
    return (/^\d/.test(tex) ? /[+*×]/ : /[-+*/|()×]/).test(tex);
  }

  // The formula that begins at `at`: {tex, display, end}, or null. `unclosed` keeps, for one text, what need not be looked for
  // again, so that the work stays linear.
  function find(text, at, unclosed) {
    const pair = kPairs.find(([open]) => text.startsWith(open, at));
    if (!pair) return null;
    const [open, close, display] = pair;
    const from = at + open.length;
    const end = unclosed.has(close) ? -1 : closing(text, from, close);
    if (end < 0) unclosed.add(close);
    if (end <= from || text.slice(from, end).trim() === '') return null;
    if (open === '$' && !isFormula(text, at, end)) return null;
    return {tex: text.slice(from, end), display, end: end + close.length};
  }

  function make(tex, display) {
    const key = (display ? 'd' : 'i') + tex;
    if (!kept.has(key)) {
      if (kRefused.test(tex)) throw new Error('a formula may not define macros, nor link elsewhere');
      const box = h('span');
      window.katex.render(tex, box, {displayMode: display, throwOnError: true, strict: 'ignore', trust: false, maxExpand: 1000, maxSize: 20});
      if (kept.size >= kKept) kept.delete(kept.keys().next().value);
      kept.set(key, box.firstChild);
    }
    return kept.get(key).cloneNode(true);
  }

  function set(formula) {
    const {box, tex, display} = formula;
    try {
      box.replaceChildren(make(tex, display));
      box.classList.add('set');
    } catch (error) {
      box.title = String(error.message).replace(/^KaTeX parse error: /, '').slice(0, 200);
    }
  }

  async function load() {
    const [style, script] = await Promise.all(['css', 'js'].map((kind) => Api.file(`katex.${kind}?v=${kVersion}`)));
    // As text inside the document: the page's policy knows both by their hashes, and nothing else.
    document.head.append(h('style', {}, style), h('script', {}, script));
    if (!window.katex) throw new Error('KaTeX did not start');
    waiting.forEach(set);
    waiting.clear();
  }

  // A formula as a node; `source` is the text it was written as.
  function node(tex, display, source) {
    const box = h('span', {class: display ? 'tex display' : 'tex'}, source);
    const formula = {box, tex, display};
    if (display) Object.entries({tabindex: '0', role: 'group', 'aria-label': 'Formula'}).forEach(([name, value]) => box.setAttribute(name, value));
    if (window.katex) {
      set(formula);
    } else if (kVersion) {
      waiting.add(formula);
      if (!loading) loading = load().catch(() => setTimeout(() => (loading = null), 5000));
    }
    return box;
  }

  return {find, node};
})();
