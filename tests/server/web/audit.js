// Every control has a name, every id is used once, text stands out from what is behind it.
const found = [];
const seen = new Set();
for (const node of document.querySelectorAll('[id]')) {
  if (seen.has(node.id)) found.push('id twice: ' + node.id);
  seen.add(node.id);
}
const shown = (node) => node.checkVisibility && node.checkVisibility({checkVisibilityCSS: true});
const nameOf = (node) => {
  const by = node.getAttribute('aria-labelledby');
  const label = node.getAttribute('aria-label') || (by && document.getElementById(by)?.textContent) ||
    (node.labels && node.labels[0]?.textContent) || (node.tagName === 'BUTTON' || node.tagName === 'A' || node.tagName === 'SUMMARY' ? node.textContent : '');
  return (label || '').trim();
};
for (const node of document.querySelectorAll('button, a[href], input, textarea, select, summary, [tabindex="0"], [role=img], dialog, meter')) {
  if (shown(node) && !nameOf(node)) found.push('no name: ' + node.outerHTML.slice(0, 120));
}
for (const node of document.querySelectorAll('[aria-describedby], [aria-controls], label[for]')) {
  for (const name of ['aria-describedby', 'aria-controls', 'for']) {
    const id = node.getAttribute(name);
    if (id && !document.getElementById(id)) found.push(name + ' points nowhere: ' + id);
  }
}
const levels = [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].filter(shown).map((n) => Number(n.tagName[1]));
if (levels[0] !== 1 || levels.filter((l) => l === 1).length !== 1) found.push('headings: ' + levels);
const rgb = (color) => (color.match(/[\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const color = rgb(getComputedStyle(at).backgroundColor);
    if (color.length === 3 || color[3] > 0.9) return color;
  }
  return [255, 255, 255];
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const bad = new Set();
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !shown(node) || node.closest('[disabled], script, style, .hidden-label')) continue;
  const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) bad.add(`contrast ${((a + 0.05) / (b + 0.05)).toFixed(2)}: ${node.tagName}.${node.className} "${walker.currentNode.data.trim().slice(0, 30)}"`);
}
return [...found, ...bad];
