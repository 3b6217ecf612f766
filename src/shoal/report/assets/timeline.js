// The timeline of a step: the pointer or the arrow keys choose a span, and a box says what it is and how long it takes.
function startTimeline(place) {
  const tracks = [...place.querySelectorAll(".track")].map((track) => [...track.querySelectorAll(".span")]).filter((spans) => spans.length);
  const tip = make("div", { class: "tip", role: "status" });
  let chosen = null;
  place.append(tip);
  place.classList.add("plot");
  fill(place, { tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-describedby": "timeline-help" }, []);

  const choose = (span) => {
    chosen?.classList.remove("on");
    chosen = span;
    tip.classList.toggle("on", Boolean(span));
    tip.textContent = span ? span.dataset.said : "";
    if (!span) return;
    span.classList.add("on");
    const [edge, box] = [place.getBoundingClientRect(), span.getBoundingClientRect()];
    const middle = box.left + box.width / 2 - edge.left - tip.offsetWidth / 2;
    const above = box.top - edge.top - tip.offsetHeight - 8;
    tip.style.left = `${Math.max(0, Math.min(edge.width - tip.offsetWidth, middle))}px`;
    tip.style.top = `${above >= -48 ? above : box.bottom - edge.top + 8}px`;
  };
  const start = (span) => parseFloat(span.style.left);
  const walk = (down, along) => {
    if (!chosen) return choose(tracks[0][0]);
    const row = tracks.findIndex((spans) => spans.includes(chosen));
    if (along) return choose(tracks[row][tracks[row].indexOf(chosen) + along] ?? chosen);
    const spans = tracks[row + down] ?? [chosen];
    const distance = (span) => Math.abs(start(span) - start(chosen));
    return choose(spans.reduce((a, b) => (distance(b) < distance(a) ? b : a)));
  };
  const keys = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  place.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return choose(null);
    if (!keys[event.key]) return;
    event.preventDefault();
    walk(...keys[event.key]);
  });
  for (const kind of ["pointermove", "pointerdown"]) {
    place.addEventListener(kind, (event) => choose(event.target.closest(".span") ?? (document.activeElement === place ? chosen : null)));
  }
  // A finger that is lifted leaves, too, and what it has chosen stays.
  place.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse" && document.activeElement !== place) choose(null); });
  place.addEventListener("focus", () => { if (!chosen && place.matches(":focus-visible")) choose(tracks[0][0]); });
  place.addEventListener("blur", () => choose(null));
}
document.querySelectorAll(".timeline").forEach(startTimeline);
