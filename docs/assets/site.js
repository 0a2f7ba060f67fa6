// What scrolls sideways takes part in the order of the Tab key, so that arrow keys can scroll it.
const focusable = () => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, pre > code"))
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
};
// The theme wraps tables after the page is there.
new MutationObserver(focusable).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", focusable);
addEventListener("load", focusable);
// A dialog has a name, which the theme leaves out.
document.querySelector(".md-search").ariaLabel = "Search";
