// Runs before the first paint (a classic script, not a module), so that a chosen theme never flashes.
(() => {
  const key = "san-theme";
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // storage can be switched off; the system's theme is fine
    }
  };
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  apply(stored());

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const system = matchMedia("(prefers-color-scheme: dark)");
    const current = () => root.dataset.theme ?? (system.matches ? "dark" : "light");
    const label = () => {
      const next = current() === "dark" ? "light" : "dark";
      button.setAttribute("aria-label", `Switch to the ${next} theme`);
      button.title = `Switch to the ${next} theme`;
    };
    button.addEventListener("click", () => {
      const next = current() === "dark" ? "light" : "dark";
      apply(next);
      try {
        localStorage.setItem(key, next);
      } catch {
        // not remembered, then
      }
      label();
    });
    system.addEventListener("change", label);
    label();
  });
})();
