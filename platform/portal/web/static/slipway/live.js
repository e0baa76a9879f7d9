// The stream of this page says when the person may no longer see it: then the page is asked for
// again, and the server answers with the sign-in page or with "not found".
document.addEventListener("live:cut", () => window.location.reload());
