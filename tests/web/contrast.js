// Texts whose contrast against what is behind them is below AA: 4.5 to 1, or 3 to 1 where they are large.
() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const parse = (text) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = text;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const light = ([r, g, b]) => {
    const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reduceRight((under, layer) => over(layer, under), [255, 255, 255, 1]);
  };
  const opacity = (element) => {
    let all = 1;
    for (let at = element; at; at = at.parentElement) all *= Number(getComputedStyle(at).opacity);
    return all;
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element || element.closest("script, style, title, option, [disabled], .hidden-text, [aria-hidden=true]")) continue;
    if (!element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) continue;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const colour = parse(element instanceof SVGElement ? style.fill : style.color);
    const seen = over([...colour.slice(0, 3), colour[3] * opacity(element)], ground);
    const [a, b] = [light(seen), light(ground)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = Number.parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5) - 0.01) {
      const name = `${element.tagName.toLowerCase()}.${String(element.className?.baseVal ?? element.className).trim().replace(/\s+/g, ".")}`;
      if (!found.has(name)) found.set(name, `${name} "${text.slice(0, 40)}" ${ratio.toFixed(2)}`);
    }
  }
  return [...found.values()];
};
