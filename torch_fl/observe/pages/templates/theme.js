"use strict";
// Light or dark as the system says, until the button says otherwise.
const theme = (function () {
  const root = document.documentElement, toggle = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const watchers = [];
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  function named() { toggle.textContent = isDark() ? "Light" : "Dark"; }
  function changed() {
    named();
    for (const watcher of watchers) watcher();
  }
  toggle.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; changed(); });
  dark.addEventListener("change", changed);
  named();
  return { watch: (watcher) => watchers.push(watcher) };
})();
