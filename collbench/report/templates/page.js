"use strict";
// Words of the point under the pointer: a picture's own titles come late and not on every system.
const words = document.getElementById("words");
document.addEventListener("pointerover", (event) => {
  const spot = event.target.closest(".spots > *");
  words.hidden = !spot;
  if (spot) {
    const title = spot.querySelector("title");
    words.textContent = title ? title.textContent : "";
  }
});
document.addEventListener("pointermove", (event) => {
  if (!words.hidden) {
    const left = Math.min(event.clientX + 14, window.innerWidth - words.offsetWidth - 8);
    words.style.left = Math.max(8, left) + "px";
    const below = event.clientY + 18 + words.offsetHeight < window.innerHeight;
    words.style.top = (below ? event.clientY + 18 : event.clientY - words.offsetHeight - 10) + "px";
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    words.hidden = true;
  }
});
// On paper everything is open.
window.addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll("details")) {
    one.open = true;
  }
});
