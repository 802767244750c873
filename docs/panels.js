// Panels of the explorer: a frame that is opened by its button, or, where it says so, when it is seen.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  for (const panel of document.querySelectorAll(".panel")) {
    const link = panel.querySelector("a");
    const open = () => {
      if (panel.querySelector("iframe")) return;
      const frame = document.createElement("iframe");
      frame.title = `Explorer: ${link.dataset.text}`;
      frame.src = `${link.href}&theme=${document.body.dataset.mdColorScheme === "slate" ? "dark" : "light"}`;
      panel.classList.add("open");
      panel.replaceChildren(frame);
    };
    link.addEventListener("click", (event) => { event.preventDefault(); open(); });
    if (panel.dataset.when === "seen") {
      new IntersectionObserver((entries, watcher) => {
        if (entries.some((one) => one.isIntersecting)) { watcher.disconnect(); open(); }
      }, { rootMargin: "200px" }).observe(panel);
    }
  }
});
