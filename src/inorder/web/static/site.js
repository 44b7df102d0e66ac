// Refreshes the live part of a page, unless it is hidden, paused, or has the focus or something that is chosen. It says
// since when the server does not answer. Pages work without it.
(function () {
  "use strict";
  var seconds = Number(document.body.dataset.refresh) || 5;
  var paused = false;

  function busy() {
    var live = document.getElementById("live");
    return !live || live.contains(document.activeElement) || live.querySelector("input:checked") !== null;
  }

  function tick() {
    say();
    if (!paused && !document.hidden && !busy()) htmx.trigger(document.body, "tick");
  }

  // On a phone the names of pages scroll sideways.
  var here = document.querySelector(".top nav [aria-current]");
  if (here) here.parentNode.scrollLeft = here.offsetLeft - here.parentNode.offsetLeft - 16;

  var live = document.getElementById("live");
  if (!live) return;
  setInterval(tick, seconds * 1000);
  document.addEventListener("visibilitychange", tick);

  var button = document.createElement("button");
  button.type = "button";
  button.className = "link";
  function say() {
    var refreshes = busy() ? "Refreshes when nothing is chosen: pause" : "Refreshes every " + seconds + " s: pause";
    button.textContent = paused ? "Paused: refresh again" : refreshes;
    button.setAttribute("aria-pressed", String(paused));
  }
  button.addEventListener("click", function () { paused = !paused; say(); tick(); });
  say();
  document.querySelector("footer").prepend(button);

  // What is shown is as old as the last answer.
  var answered = new Date();
  var silence = document.createElement("p");
  silence.className = "notice trouble";
  silence.setAttribute("role", "alert");
  document.body.addEventListener("htmx:afterRequest", function (event) {
    document.body.classList.toggle("silent", !event.detail.successful);
    if (event.detail.successful) {
      answered = new Date();
      silence.remove();
    } else if (!silence.isConnected) {
      silence.textContent = "No answer since " + answered.toTimeString().slice(0, 8) + ": the page shows what was read before.";
      document.querySelector("header").append(silence);
    }
  });

  var scrolled = [];
  function tables() { return Array.from(document.querySelectorAll("#live .scroll")); }
  document.body.addEventListener("htmx:beforeSwap", function (event) {
    var xhr = event.detail.xhr;
    if (xhr.status === 200 && !xhr.responseText.includes('id="live"')) {
      event.detail.shouldSwap = false;
      location.reload();  // it leads to the sign-in page
    }
    scrolled = tables().map(function (each) { return each.scrollLeft; });
  });
  document.body.addEventListener("htmx:afterSwap", function () {
    tables().forEach(function (each, number) { each.scrollLeft = scrolled[number] || 0; });
  });
})();
