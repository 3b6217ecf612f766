"""What every page is tested for: hostile names, addresses outside, contrast, structure."""

from __future__ import annotations

from html.parser import HTMLParser

NASTY = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'>\"'&{{x}}$title\u2028"

CONTRAST = """() => {
  const parse = (text) => {
    const numbers = text.match(/[\\d.]+/g).map(Number);
    return numbers.length > 3 ? numbers : [...numbers, 1];
  };
  const over = (top, under) => [0, 1, 2].map((c) => top[c] * top[3] + under[c] * (1 - top[3])).concat(1);
  const behind = (element) => {
    if (!element) return [255, 255, 255, 1];
    const own = parse(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, behind(element.parentElement));
  };
  const light = (colour) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = colour.slice(0, 3).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const paper = behind(document.body);
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const speaks = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (element.matches("script, title, desc, option, .tip *, [aria-disabled=true]")) continue;
    const style = getComputedStyle(element);
    const graphic = element.matches("path.mark, .bar, .valid, .expected, .dot, rect.part0, rect.part1");
    if (!speaks && !graphic) continue;
    const inSvg = element instanceof SVGElement;
    const stroked = style.fill === "none" || element.matches("line");
    const colour = inSvg ? (stroked ? style.stroke : style.fill) : style.color;
    const part = /on-part(\\d)/.exec(element.getAttribute("class") || "");
    const bar = part && document.querySelector(`rect.part${part[1]}`);
    const ground = bar ? parse(getComputedStyle(bar).fill) : inSvg ? paper : behind(element);
    found.push([ratio(over(parse(colour), ground), ground), graphic, element.outerHTML.slice(0, 100)]);
  }
  return found;
}"""

STRUCTURE = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const ids = all("[id]").map((element) => element.id);
  const labels = (element) => (element.getAttribute("aria-labelledby") || "").split(" ");
  const named = (element) => labels(element).every((id) => document.getElementById(id)?.textContent);
  const told = (svg) => svg.querySelector("title") && svg.querySelector("desc");
  return {
    repeated: ids.filter((id, place) => ids.indexOf(id) !== place),
    captions: all("table").filter((table) => !table.caption?.textContent).length,
    scopes: all("th:not([scope])").length,
    roles: all("svg:not([aria-hidden=true]):not([role=img])").length,
    images: all("svg[role=img]").filter((svg) => !told(svg) || !named(svg)).length,
    regions: all("section, [role=region]").filter((region) => !named(region)).length,
    fields: all("input, select").filter((field) => !field.labels.length && !field.getAttribute("aria-label")).length,
    buttons: all("button").filter((button) => !button.textContent.trim() || button.type !== "button").length,
    scrolling: all(".scroll").filter((region) => region.tabIndex !== 0).length,
    broken: all("nav a").filter((link) => !document.querySelector(link.getAttribute("href"))).length,
    positive: all("[tabindex]").filter((element) => element.tabIndex > 0).length,
  };
}"""


class Outline(HTMLParser):
    """Every address the page mentions in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "action"}]


BROKEN_WORDS = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (element.closest("script, style, svg, .tip, code, pre, [hidden]") || !element.getClientRects().length) continue;
    for (const word of node.textContent.matchAll(/[^\\s\\u2010-\\u2014/+-]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const boxes = [...range.getClientRects()].filter((box) => box.width > 0.5);
      const tops = new Set(boxes.map((box) => Math.round(box.top)));
      if (tops.size > 1) found.push(`${word[0]} in <${element.tagName.toLowerCase()} class="${element.className}">`);
    }
  }
  return found;
}"""
