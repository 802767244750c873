// All texts of a page whose contrast is below WCAG AA: 4.5, or 3 where they are large.
() => {
  const numbers = (text) => {
    const found = text.match(/[\d.e-]+/g).map(Number), whole = text.startsWith("color(") ? 1 : 255;
    return [...found.slice(0, 3).map((one) => one / whole), found[3] ?? 1];
  };
  const over = (top, below) => top.slice(0, 3).map((one, at) => one * top[3] + below[at] * (1 - top[3]));
  const light = (rgb) => { const [r, g, b] = rgb.map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (element) => element ? over(numbers(getComputedStyle(element).backgroundColor), ground(element.parentElement)) : [1, 1, 1];
  const bad = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility({ opacityProperty: true }) || element.closest("script, style, :disabled, svg")) continue;
    const style = getComputedStyle(element), below = ground(element);
    let ink = numbers(style.color);
    for (let one = element; one; one = one.parentElement) ink[3] *= Number(getComputedStyle(one).opacity);
    const [a, b] = [light(over(ink, below)), light(below)].sort((x, y) => y - x), size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5, ratio = (a + 0.05) / (b + 0.05);
    seen += 1;
    if (ratio < needed - 0.01) bad.push(`${node.data.trim().slice(0, 30)}: ${ratio.toFixed(2)} in ${element.tagName}.${element.className}#${element.id}`);
  }
  return { seen, bad: [...new Set(bad)] };
}
