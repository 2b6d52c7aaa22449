// Puts the address of this very server into the examples of the start page.
for (const place of document.querySelectorAll("[data-origin]")) {
  place.textContent = location.origin;
}
