// Markdown within a line: code spans, formulas, links, emphasis, strikethrough. Answers are untrusted: the result is text nodes
// and a few element kinds, a link is made only for http, https and mailto, and the work is linear in the text.
const Inline = (() => {
  const kMaxOpen = 48;       // delimiters that wait for their partner; more are plain text
  const kMaxTarget = 2048;   // characters of a link's target
  const kEscapable = /[!-/:-@[-`{-~]/;
  const kPunctuation = /[\p{P}\p{S}]/u;
  const kSpace = /\s/;
  const kEntities = {amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", '#39': "'", nbsp: '\u00a0'};
  const kBareUrl = /https?:\/\/[^\s<>"'`\\^{}|]+/y;
  const kAngleUrl = /<((?:https?:\/\/|mailto:)[^\s<>]+)>/y;
  const kEntity = /&(amp|lt|gt|quot|apos|#39|nbsp);/y;

  // The address as the browser reads it, or null when it is not one to follow. Control characters, odd spellings and
  // relative addresses all go through the browser's own parser first.
  function safeUrl(address) {
    try {
      const url = new URL(address);
      return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
    } catch {
      return null;
    }
  }

  function link(address, children) {
    return h('a', {href: address, rel: 'noopener noreferrer nofollow', target: '_blank', title: address}, children);
  }

  // "(target "title")" from `at`: {target, end}, or null.
  function linkTarget(text, at) {
    if (text[at] !== '(') return null;
    const limit = Math.min(text.length, at + kMaxTarget);
    let i = at + 1;
    while (i < limit && text[i] === ' ') i++;
    const begin = i;
    let depth = 0;
    for (; i < limit && !kSpace.test(text[i]); i++) {
      if (text[i] === '(') depth++;
      else if (text[i] === ')' && depth-- === 0) break;
    }
    let target = text.slice(begin, i);
    if (target.startsWith('<') && target.endsWith('>')) target = target.slice(1, -1);
    while (i < limit && kSpace.test(text[i])) i++;
    if (text[i] === '"' || text[i] === "'") {
      const close = text.indexOf(text[i], i + 1);
      if (close < 0 || close >= limit) return null;
      i = close + 1;
      while (i < limit && kSpace.test(text[i])) i++;
    }
    return i < limit && text[i] === ')' ? {target, end: i + 1} : null;
  }

  // Frames are the delimiters that are still open, the outermost first; each holds the nodes that came after it.
  class Builder {
    constructor() {
      this.frames = [{mark: '', nodes: []}];
      this.text = '';
    }
    top() {
      return this.frames[this.frames.length - 1];
    }
    flush() {
      if (this.text) this.top().nodes.push(document.createTextNode(this.text));
      this.text = '';
    }
    add(node) {
      this.flush();
      this.top().nodes.push(node);
    }
    open(frame) {
      if (this.frames.length > kMaxOpen) {
        this.text += frame.mark;
        return;
      }
      this.flush();
      this.frames.push({...frame, nodes: []});
    }
    // Frames above `depth` found no partner: their marks become text.
    collapse(depth) {
      this.flush();
      while (this.frames.length - 1 > depth) {
        const frame = this.frames.pop();
        this.top().nodes.push(document.createTextNode(frame.mark), ...frame.nodes);
      }
    }
    find(accept) {
      for (let i = this.frames.length - 1; i > 0; i--) {
        if (accept(this.frames[i])) return i;
      }
      return -1;
    }
  }

  // Whether a run of delimiters may open or close emphasis, from the characters around it.
  function flanks(text, begin, end) {
    const before = begin === 0 ? ' ' : text[begin - 1];
    const after = end >= text.length ? ' ' : text[end];
    const afterSpace = kSpace.test(after), beforeSpace = kSpace.test(before);
    const afterMark = kPunctuation.test(after), beforeMark = kPunctuation.test(before);
    const left = !afterSpace && (!afterMark || beforeSpace || beforeMark);
    const right = !beforeSpace && (!beforeMark || afterSpace || afterMark);
    if (text[begin] !== '_') return {opens: left, closes: right};
    return {opens: left && (!right || beforeMark), closes: right && (!left || afterMark)};
  }

  function emphasis(out, sign, count, {opens, closes}) {
    let left = count;
    while (closes && left > 0) {
      const at = out.find((f) => f.sign === sign && (sign !== '~' || (f.mark.length === 2 && left === 2)));
      if (at < 0) break;
      out.collapse(at);
      const frame = out.frames.pop();
      const width = sign === '~' || (frame.mark.length >= 2 && left >= 2) ? 2 : 1;
      const node = h(sign === '~' ? 'del' : width === 2 ? 'strong' : 'em', {}, frame.nodes);
      left -= width;
      const rest = frame.mark.slice(width);
      if (rest) out.frames.push({...frame, mark: rest, nodes: [node]});
      else out.add(node);
    }
    if (left === 0) return;
    const mark = sign.repeat(left);
    if (opens && (sign !== '~' || left === 2)) out.open({sign, mark});
    else out.text += mark;
  }

  function closeBracket(out, text, at) {
    const index = out.find((frame) => frame.sign === '[' && frame.active);
    if (index < 0) return 0;
    const found = linkTarget(text, at + 1);
    if (!found) {
      out.frames[index].active = false;
      return 0;
    }
    out.collapse(index);
    const frame = out.frames.pop();
    const address = safeUrl(found.target);
    if (address) {
      const label = frame.nodes.length ? frame.nodes : [address];
      out.add(link(address, label));
      for (const outer of out.frames) outer.active = false;  // no link inside a link
    } else {
      // Not an address to follow: all of it stays readable, nothing of it can be clicked.
      out.top().nodes.push(document.createTextNode(frame.mark), ...frame.nodes);
      out.text += text.slice(at, found.end);
    }
    return found.end;
  }

  // Nodes for `text`; line breaks in it are kept. While it grows (not `done`), what follows a backtick may yet be code, and is no
  // formula until that is known.
  function render(text, done = true) {
    const out = new Builder();
    const unclosedTicks = new Set(), unclosedFormulas = new Set();
    let i = 0;
    while (i < text.length) {
      const c = text[i];
      const known = done || unclosedTicks.size === 0;
      const formula = known && (c === '$' || c === '\\') ? Maths.find(text, i, unclosedFormulas) : null;
      if (formula) {
        out.add(Maths.node(formula.tex, formula.display, text.slice(i, formula.end)));
        i = formula.end;
      } else if (c === '$') {  // all of a run, so that no half of it opens a formula
        while (text[i] === '$') out.text += text[i++];
      } else if (c === '\\' && i + 1 < text.length && kEscapable.test(text[i + 1])) {
        out.text += text[i + 1];
        i += 2;
      } else if (c === '\n' || (c === '\\' && text[i + 1] === '\n')) {
        out.text = out.text.trimEnd();
        out.add(h('br'));
        i += c === '\n' ? 1 : 2;
        while (text[i] === ' ') i++;
      } else if (c === '`') {
        let end = i;
        while (text[end] === '`') end++;
        const ticks = text.slice(i, end);
        const close = unclosedTicks.has(ticks.length) ? -1 : closingTicks(text, end, ticks.length);
        if (close < 0) {
          unclosedTicks.add(ticks.length);
          out.text += ticks;
          i = end;
        } else {
          const code = text.slice(end, close).replace(/\n/g, ' ');
          const padded = code.length > 2 && code.startsWith(' ') && code.endsWith(' ') && code.trim() !== '';
          out.add(h('code', {}, padded ? code.slice(1, -1) : code));
          i = close + ticks.length;
        }
      } else if (c === '*' || c === '_' || c === '~') {
        let end = i;
        while (text[end] === c) end++;
        emphasis(out, c, end - i, flanks(text, i, end));
        i = end;
      } else if (c === '[' || (c === '!' && text[i + 1] === '[')) {
        // An image becomes a link to it: this page loads nothing from elsewhere.
        const mark = c === '!' ? '![' : '[';
        out.open({sign: '[', mark, active: true});
        i += mark.length;
      } else if (c === ']') {
        const end = closeBracket(out, text, i);
        if (end) i = end;
        else {
          out.text += c;
          i++;
        }
      } else if (c === '<' && match(kAngleUrl, text, i) && safeUrl(match(kAngleUrl, text, i)[1])) {
        const [all, address] = match(kAngleUrl, text, i);
        out.add(link(safeUrl(address), [address]));
        i += all.length;
      } else if (c === 'h' && (i === 0 || !/\w/.test(text[i - 1])) && match(kBareUrl, text, i)) {
        i += bareUrl(out, match(kBareUrl, text, i)[0]);
      } else if (c === '&' && match(kEntity, text, i)) {
        const [all, name] = match(kEntity, text, i);
        out.text += kEntities[name];
        i += all.length;
      } else {
        out.text += c;
        i++;
      }
    }
    out.collapse(0);
    return out.frames[0].nodes;
  }

  function match(pattern, text, at) {
    pattern.lastIndex = at;
    return pattern.exec(text);
  }

  function closingTicks(text, from, count) {
    for (let at = text.indexOf('`', from); at >= 0;) {
      let end = at;
      while (text[end] === '`') end++;
      if (end - at === count) return at;
      at = text.indexOf('`', end);
    }
    return -1;
  }

  // A sentence's own punctuation, and a bracket that was open before the address, are not part of it.
  function bareUrl(out, found) {
    let end = found.length;
    let surplus = found.split(')').length - found.split('(').length;
    for (; end > 0; end--) {
      if (found[end - 1] === ')' && surplus > 0) surplus--;
      else if (!'.,:;!?*_~]'.includes(found[end - 1])) break;
    }
    const address = found.slice(0, end);
    const safe = safeUrl(address);
    if (!safe) {
      out.text += found;
      return found.length;
    }
    out.add(link(safe, [address]));
    return address.length;
  }

  return {render, safeUrl};
})();
