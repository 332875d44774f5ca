
"use strict";
// Fetches the page again every two seconds and shows the new figures in place of the old. Says so if nobody answers, and
// goes on asking: a learner that is started again is found if it has the same address.
const silence = document.getElementById("silence");
let heard = new Date();
async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.pathname, {cache: "no-store", signal: AbortSignal.timeout(8000)});
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
    document.title = fresh.title;
    heard = new Date();
    silence.hidden = true;
  } catch {
    silence.textContent = "No answer since " + heard.toLocaleTimeString() + ": the run has ended, or its learner is being started again.";
    silence.hidden = false;
  }
}
async function again() {
  await refresh();
  setTimeout(again, 2000);
}
setTimeout(again, 2000);
document.addEventListener("visibilitychange", refresh);
