// A light hand on code: comments, strings, numbers and common keywords, for any language alike.
const Highlight = (() => {
  const kLongest = 20000;  // characters; longer code stays plain
  const kKeywords = new Set(('abstract and as assert async await auto bool break case catch char class const constexpr continue ' +
    'def default defer del delete do double elif else elsif end enum except export extends extern false final finally ' +
    'float fn for foreach from func function go goto if impl implements import in include inline instanceof int ' +
    'interface is kernel lambda let local long loop match module mut namespace new nil None nonlocal not null nullptr or ' +
    'override package pass private protected pub public raise require return self Self short signed sizeof static ' +
    'struct super switch template then this throw throws trait true True False try type typedef typename typeof ' +
    'undefined union unless unsafe unsigned until use using var virtual void volatile where while with yield ' +
    'SELECT FROM WHERE INSERT UPDATE DELETE CREATE TABLE JOIN ON GROUP BY ORDER LIMIT AND OR NOT NULL VALUES INTO SET').split(' '));
  const kHash = /^(py|python|sh|bash|zsh|shell|console|yaml|yml|toml|ruby|rb|perl|r|make|makefile|cmake|dockerfile|ini|conf)$/;
  const kDash = /^(sql|lua|haskell|hs|ada)$/;
  const kMarkup = /^(html|xml|svg|markdown|md)$/;
  const kPlain = /^(|text|txt|plain|plaintext|output|csv|log)$/;

  const strings = '"""[\\s\\S]*?"""|"(?:\\\\.|[^"\\\\\\n])*"|\'(?:\\\\.|[^\'\\\\\\n])*\'|`(?:\\\\.|[^`\\\\])*`';
  const words = '(?<number>\\b\\d[\\w.]*)|(?<word>[A-Za-z_]\\w*)';
  const scanner = (comment) => new RegExp(`(?<comment>${comment})|(?<string>${strings})|${words}`, 'g');
  const kScanners = {
    hash: scanner('#[^\\n]*'),
    dash: scanner('--[^\\n]*'),
    markup: scanner('<!' + '--[\\s\\S]*?--' + '>'),
    slash: scanner('\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?\\*\\/'),
  };

  function render(code, language) {
    const fragment = document.createDocumentFragment();
    if (kPlain.test(language) || code.length > kLongest) {
      fragment.append(code);
      return fragment;
    }
    const kind = kHash.test(language) ? 'hash' : kDash.test(language) ? 'dash' : kMarkup.test(language) ? 'markup' : 'slash';
    let at = 0;
    for (const found of code.matchAll(kScanners[kind])) {
      const {comment, string, number, word} = found.groups;
      const style = comment ? 'c' : string ? 's' : number ? 'n' : kKeywords.has(word) ? 'k' : '';
      if (!style) continue;
      if (found.index > at) fragment.append(code.slice(at, found.index));
      fragment.append(h('span', {class: 't-' + style}, found[0]));
      at = found.index + found[0].length;
    }
    if (at < code.length) fragment.append(code.slice(at));
    return fragment;
  }

  return {render};
})();
