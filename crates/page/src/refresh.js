
"use strict";
// Fetches the page every two seconds and replaces its content. Without a response it shows a notice and keeps trying: a
// restarted learner is found again if it has the same address.
const silence = document.getElementById("silence");
let updated = new Date();
async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.pathname, {cache: "no-store", signal: AbortSignal.timeout(8000)});
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
    document.title = fresh.title;
    updated = new Date();
    silence.hidden = true;
  } catch {
    silence.textContent = "No response since " + updated.toLocaleTimeString() + ": the run has ended, or its learner is restarting.";
    silence.hidden = false;
  }
}
async function again() {
  await refresh();
  setTimeout(again, 2000);
}
setTimeout(again, 2000);
document.addEventListener("visibilitychange", refresh);
