// Markdown in blocks: headings, lists, tables, quotes, code, formulas. A view keeps the blocks that are complete and renders only
// the last one again, so that a long answer streams as smoothly as a short one.
const Markdown = (() => {
  const kMaxDepth = 12;  // lists and quotes inside each other; deeper ones are plain text
  const kFence = /^( {0,3})(`{3,}(?=[^`]*$)|~{3,})[ \t]*(.*)$/;
  const kHeading = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
  const kRule = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
  const kQuote = /^ {0,3}> ?(.*)$/;
  const kMostLines = 60;  // of a formula
  const kFormula = /^ {0,3}(\$\$|\\\[)/;
  const kItem = /^( *)([-*+]|\d{1,9}[.)])(?:( +)(.*))?$/;
  // Of a line without spaces at its end: nowhere can two parts of it share a run of them, which would take quadratic time.
  const kTableRule = /^ {0,3}\|?[ \t]*:?-+:?(?:[ \t]*\|[ \t]*:?-+:?)*(?:[ \t]*\|)?$/;

  const blank = (line) => /^\s*$/.test(line);
  const indent = (line) => line.length - line.trimStart().length;
  const dedent = (line, most) => line.slice(Math.min(most, indent(line)));
  const untab = (line) => line.replace(/^[ \t]+/, (space) => space.replace(/\t/g, '    '));

  function cells(line) {
    const row = line.trim().replace(/^\|/, '');
    const found = [''];
    for (let i = 0; i < row.length; i++) {
      if (row[i] === '\\' && row[i + 1] === '|') found[found.length - 1] += row[++i];
      else if (row[i] !== '|') found[found.length - 1] += row[i];
      else if (i + 1 < row.length) found.push('');
    }
    return found.map((cell) => cell.trim());
  }

  function startsTable(lines, i) {
    if (i + 1 >= lines.length || !lines[i].includes('|') || !lines[i + 1].includes('-')) return false;
    return kTableRule.test(lines[i + 1].trimEnd()) && cells(lines[i]).length === cells(lines[i + 1]).length;
  }

  // What ends a paragraph. A numbered list does only from 1 on, so that a sentence may begin a line with a year.
  function interrupts(lines, i) {
    const line = lines[i];
    if (kFence.test(line) || kHeading.test(line) || kRule.test(line) || kQuote.test(line) || kFormula.test(line)) return true;
    const item = kItem.exec(line);
    if (item && item[4] && (!/\d/.test(item[2]) || /^1[.)]$/.test(item[2]))) return true;
    return startsTable(lines, i);
  }

  // Top-level blocks of `lines`, each with the lines [start, end) it was made of.
  function parse(lines, depth = 0) {
    const blocks = [];
    for (let i = 0; i < lines.length;) {
      if (blank(lines[i])) {
        i++;
        continue;
      }
      const block = depth > kMaxDepth ? paragraph(lines, i, true) : parseBlock(lines, i, depth);
      block.start = i;
      i = block.end;
      blocks.push(block);
    }
    return blocks;
  }

  function parseBlock(lines, i, depth) {
    const line = lines[i];
    let found;
    if ((found = kFence.exec(line))) return fence(lines, i, found);
    if ((found = kHeading.exec(line))) {
      const text = (found[2] || '').trim().replace(/(^|[ \t])#+$/, '');
      return {type: 'heading', level: found[1].length, text, end: i + 1};
    }
    if (kRule.test(line)) return {type: 'rule', end: i + 1};
    if (kQuote.test(line)) return quote(lines, i, depth);
    if (kItem.test(untab(line)) && indent(untab(line)) < 4) return list(lines, i, depth);
    if (startsTable(lines, i)) return table(lines, i);
    if (kFormula.test(line)) return formula(lines, i) || paragraph(lines, i, false);
    if (indent(untab(line)) >= 4) return indentedCode(lines, i);
    return paragraph(lines, i, false);
  }

  function fence(lines, i, [, space, mark, info]) {
    const code = [];
    let closed = false;
    for (i++; i < lines.length && !closed; i++) {
      const text = lines[i].trim();
      closed = text.length >= mark.length && text === mark[0].repeat(text.length);
      if (!closed) code.push(dedent(lines[i], space.length));
    }
    return {type: 'code', language: info.trim().split(/[\s{,]/)[0], text: code.join('\n'), closed, end: i};
  }

  function indentedCode(lines, i) {
    const code = [];
    while (i < lines.length && (blank(lines[i]) || indent(untab(lines[i])) >= 4)) code.push(dedent(untab(lines[i++]), 4));
    while (blank(code[code.length - 1])) {
      code.pop();
      i--;
    }
    return {type: 'code', language: '', text: code.join('\n'), closed: true, end: i};
  }

  // $$ … $$ or \[ … \] on lines of their own, up to the next empty one; null: it is part of a paragraph. One that is not closed
  // yet is shown as it stands.
  function formula(lines, i) {
    const open = kFormula.exec(lines[i])[1];
    const close = open === '$$' ? '$$' : '\\]';
    let end = i + 1;
    while (end < Math.min(lines.length, i + kMostLines) && !blank(lines[end]) && !lines[end - 1].slice(end - 1 === i ? lines[i].indexOf(open) + 2 : 0).includes(close)) end++;
    const source = lines.slice(i, end).join('\n').trim();
    const at = source.indexOf(close, 2);
    if (at < 0) return end === lines.length ? {type: 'formula', source, tex: '', end} : null;
    const rest = source.slice(at + 2).trim();
    if (!/^[.,;:]?$/.test(rest)) return null;
    const tex = source.slice(2, at).trim();
    return tex ? {type: 'formula', source, tex: tex + rest, end} : null;
  }

  // A line that begins with $$ may also close what the paragraph has opened.
  function paragraph(lines, i, plain) {
    const own = [];
    let signs = 0;  // $$ so far
    do {
      own.push(lines[i++].trimStart());
      signs += own[own.length - 1].split('$$').length - 1;
    } while (i < lines.length && !blank(lines[i]) && (plain || !interrupts(lines, i) || (signs % 2 === 1 && lines[i].trimStart().startsWith('$$'))));
    return {type: 'paragraph', text: own.join('\n').trimEnd(), end: i};
  }

  function quote(lines, i, depth) {
    const own = [];
    while (i < lines.length && !blank(lines[i])) {
      const found = kQuote.exec(lines[i]);
      if (!found && interrupts(lines, i)) break;
      own.push(found ? found[1] : lines[i]);
      i++;
    }
    return {type: 'quote', blocks: parse(own, depth + 1), end: i};
  }

  function table(lines, i) {
    const head = cells(lines[i]);
    const align = cells(lines[i + 1]).map((c) => (c.startsWith(':') ? (c.endsWith(':') ? 'center' : 'left') : c.endsWith(':') ? 'right' : ''));
    const rows = [];
    for (i += 2; i < lines.length && !blank(lines[i]) && (lines[i].includes('|') || !interrupts(lines, i)); i++) {
      const row = cells(lines[i]).slice(0, head.length);
      while (row.length < head.length) row.push('');
      rows.push(row);
    }
    return {type: 'table', head, align, rows, end: i};
  }

  // Models indent the lines of an item by two, three or four columns, whatever the marker's width: all of them count.
  function list(lines, i, depth) {
    const first = kItem.exec(untab(lines[i]));
    const ordered = /\d/.test(first[2]);
    const items = [];
    let loose = false;
    while (i < lines.length) {
      const found = kItem.exec(untab(lines[i]));
      if (!found || kRule.test(lines[i]) || /\d/.test(found[2]) !== ordered || found[1].length > first[1].length + 3) break;
      const space = (found[3] || ' ').length;
      const offset = found[1].length + found[2].length + (space > 4 ? 1 : space);
      const belongs = (line) => indent(untab(line)) >= Math.min(offset, found[1].length + 2);
      const own = [(space > 4 ? ' '.repeat(space - 1) : '') + (found[4] || '')];
      i++;
      while (i < lines.length) {
        let next = i;
        while (next < lines.length && blank(lines[next])) next++;
        if (next >= lines.length) break;
        if (belongs(lines[next])) {
          if (next > i) loose = loose || !kItem.test(untab(lines[next]));
          while (i < next) own.push(lines[i++] && '');
          own.push(dedent(untab(lines[i++]), offset));
        } else if (next === i && !kItem.test(untab(lines[i])) && !interrupts(lines, i)) {
          own.push(lines[i++].trimStart());
        } else {
          break;
        }
      }
      const task = /^\[([ xX])\] (.*)$/.exec(own[0]);
      if (task) own[0] = task[2];
      items.push({blocks: parse(own, depth + 1), checked: task ? task[1] !== ' ' : null});
      let next = i;
      while (next < lines.length && blank(lines[next])) next++;
      const sibling = next < lines.length && kItem.exec(untab(lines[next]));
      if (!sibling || kRule.test(lines[next]) || /\d/.test(sibling[2]) !== ordered) break;
      if (next > i) loose = true;
      i = next;
    }
    return {type: 'list', ordered, number: ordered ? parseInt(first[2], 10) : 1, items, loose, end: i};
  }

  function codeNode(block, done) {
    const code = h('code', {});
    const name = /^[\w+#.-]{1,24}$/.test(block.language) ? block.language : '';
    if (done) code.append(Highlight.render(block.text, name.toLowerCase()));
    else code.append(document.createTextNode(block.text));
    return h('figure', {class: 'code'},
      h('figcaption', {}, h('span', {}, name || 'text'), copyButton('Copy', () => code.textContent)),
      h('pre', {tabindex: '0', role: 'region', 'aria-label': name ? 'Code, ' + name : 'Code'}, code));
  }

  function itemNode(item, loose, done) {
    const inline = (block) => Inline.render(block.text, done);
    const nodes = item.blocks.map((block, i) =>
      block.type === 'paragraph' && !loose ? (i === 0 ? inline(block) : h('div', {}, inline(block))) : node(block, true));
    if (item.checked === null) return h('li', {}, nodes.flat());
    const box = h('input', {type: 'checkbox', disabled: true, checked: item.checked, 'aria-label': item.checked ? 'done' : 'to do'});
    return h('li', {class: 'task'}, box, nodes.flat());
  }

  function node(block, done) {
    switch (block.type) {
      case 'heading':
        return h('h' + Math.min(6, block.level + 2), {class: 'md-h' + block.level}, Inline.render(block.text));
      case 'rule':
        return h('hr');
      case 'quote':
        return h('blockquote', {}, block.blocks.map((inner) => node(inner, done)));
      case 'code':
        return codeNode(block, done);
      case 'formula':
        return h('p', {}, block.tex ? Maths.node(block.tex, true, block.source) : h('span', {class: 'tex'}, block.source));
      case 'list':
        return h(block.ordered ? 'ol' : 'ul', {start: block.ordered && block.number !== 1 ? block.number : null},
          block.items.map((item) => itemNode(item, block.loose, done)));
      case 'table': {
        const row = (kind, list) => h('tr', {}, list.map((cell, i) => h(kind, {scope: kind === 'th' ? 'col' : null, class: block.align[i] || null}, Inline.render(cell))));
        return h('div', {class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Table'},
          h('table', {}, h('thead', {}, row('th', block.head)), h('tbody', {}, block.rows.map((cellsOfRow) => row('td', cellsOfRow)))));
      }
      default:
        return h('p', {}, Inline.render(block.text, done));
    }
  }

  // Shows a text that grows at its end. `root` holds nothing else.
  class View {
    constructor(root) {
      this.root = root;
      this.reset();
    }
    reset() {
      this.root.replaceChildren();
      this.settled = 0;   // characters whose blocks are complete
      this.live = [];     // nodes of the blocks after them
      this.openCode = null;
    }
    update(text, done) {
      const lines = text.slice(this.settled).split('\n');
      const blocks = parse(lines);
      if (!done && this.growCode(blocks)) return;
      for (const old of this.live) old.remove();
      this.live = [];
      this.openCode = null;
      const last = blocks[blocks.length - 1];
      // The block before the last is complete only when the last one's kind is sure: its first line has ended.
      const settle = last && !done && last.start < lines.length - 1 ? blocks.length - 1 : 0;
      blocks.forEach((block, i) => {
        const made = node(block, done || i < blocks.length - 1 || (block.type === 'code' && block.closed));
        this.root.append(made);
        if (!done && i >= settle) this.live.push(made);
        if (!done && i === blocks.length - 1 && block.type === 'code' && !block.closed) {
          this.openCode = {start: block.start, text: made.querySelector('code').firstChild, settle};
        }
      });
      if (settle > 0) {
        const before = lines.slice(0, last.start).reduce((sum, line) => sum + line.length + 1, 0);
        this.settled += before;
        if (this.openCode) this.openCode.start = 0;
      }
    }
    // A code block that only got longer: its text node grows, nothing is built again.
    growCode(blocks) {
      const open = this.openCode;
      if (!open || blocks.length !== 1 || this.live.length !== 1) return false;
      const [block] = blocks;
      if (block.type !== 'code' || block.closed || block.start !== open.start) return false;
      if (!block.text.startsWith(open.text.data)) return false;
      open.text.appendData(block.text.slice(open.text.data.length));
      return true;
    }
  }

  return {View, parse};
})();
