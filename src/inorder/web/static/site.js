// Refreshes the live part of a page, unless nobody looks, someone is choosing, or it is paused. Pages work without it.
(function () {
  "use strict";
  var seconds = Number(document.body.dataset.refresh) || 5;
  var paused = false;

  function busy() {
    var live = document.getElementById("live");
    if (!live) return true;
    var active = document.activeElement;
    var typing = active && live.contains(active) && /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName);
    return typing || live.querySelector("input:checked") !== null;
  }

  function tick() {
    if (!paused && !document.hidden && !busy()) htmx.trigger(document.body, "tick");
  }

  var live = document.getElementById("live");
  if (!live) return;
  setInterval(tick, seconds * 1000);
  document.addEventListener("visibilitychange", tick);

  var button = document.createElement("button");
  button.type = "button";
  button.className = "link";
  function say() {
    button.textContent = paused ? "Paused: refresh again" : "Refreshes every " + seconds + " s: pause";
    button.setAttribute("aria-pressed", String(paused));
  }
  button.addEventListener("click", function () { paused = !paused; say(); tick(); });
  say();
  document.querySelector("footer").prepend(button);
})();
