// Makes a page live: it follows the store's events, fetches itself anew when one concerns it, and changes only what differs.
// Everything here is a comfort: links, forms and all content work without it.
"use strict";
(() => {
  const FIRST_RETRY_MS = 500, LAST_RETRY_MS = 15000, APART_MS = 1000, TYPING_MS = 250, LOOK_MS = 2000, HIDDEN_MS = 60000;
  const FETCH_MS = 20000, SLOW_MS = 300;
  const root = document.documentElement;
  const $ = (selector, inside = document) => inside.querySelector(selector);
  const $$ = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const isLive = () => $("#main")?.hasAttribute("data-live") ?? false;
  const say = (text) => { $("#said").textContent = text; };
  const kept = {  // what this browser remembers, where it may
    get(name) { try { return localStorage.getItem(name); } catch { return null; } },
    set(name, value) { try { value ? localStorage.setItem(name, value) : localStorage.removeItem(name); } catch { /* not kept */ } },
  };

  // -- times ------------------------------------------------------------------------------------------------------

  const skew = Date.now() - Date.parse(root.dataset.now);  // our clock against the server's

  function age(at) {  // as `words.age` says it
    const seconds = (Date.now() - skew - at) / 1000;
    const whole = Math.floor(Math.abs(seconds));
    if (whole < 10) return "just now";
    const told = whole < 60 ? `${whole} s` : whole < 3600 ? `${Math.floor(whole / 60)} min`
      : whole < 172800 ? `${Math.floor(whole / 3600)} h` : `${Math.floor(whole / 86400)} d`;
    return seconds > 0 ? `${told} ago` : `in ${told}`;
  }

  function tick(inside) {
    for (const time of $$("time[data-age]", inside)) {
      const told = age(Date.parse(time.dateTime));
      if (time.textContent !== told) time.textContent = told;
    }
  }

  function isSameClock(zone) {
    const now = new Date();
    try { return now.toLocaleString("en", { timeZone: zone }) === now.toLocaleString("en"); } catch { return false; }
  }

  function tellZone() {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (!zone || zone === root.dataset.zone || document.cookie.split("; ").includes(`zone=${zone}`)) return;
    document.cookie = `zone=${zone}; path=/; max-age=31536000; samesite=strict`;
    if (!document.cookie.includes(`zone=${zone}`) || isSameClock(root.dataset.zone)) return;
    if (isLive()) refresh(); else location.reload();
  }

  // -- changing only what differs ------------------------------------------------------------------------------------

  const isField = (node) => /^(INPUT|SELECT|TEXTAREA)$/.test(node.nodeName);  // what a person typed or chose is theirs
  const isAlike = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName;
  const isOurs = (node, name) => (name === "open" && node.nodeName === "DETAILS") || name === "data-done";

  function morph(from, to) {
    if (from.nodeType !== 1) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    if (isField(from) || from.isEqualNode(to)) return;
    for (const { name } of [...from.attributes]) {
      if (!to.hasAttribute(name) && !isOurs(from, name)) from.removeAttribute(name);
    }
    for (const { name, value } of to.attributes) {
      if (from.getAttribute(name) !== value && !isOurs(from, name)) from.setAttribute(name, value);
    }
    morphInside(from, to);
  }

  function morphInside(from, to) {
    const named = new Map([...from.children].filter((child) => child.id).map((child) => [child.id, child]));
    let at = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      let have = null;
      if (wanted.id) {
        have = named.get(wanted.id) ?? null;
        if (have && !isAlike(have, wanted)) have = null;
      } else {
        while (at && at.nodeType === 1 && at.id && !to.ownerDocument.getElementById(at.id)) at = removed(at);
        if (at && !at.id && isAlike(at, wanted)) have = at;
      }
      if (!have) {
        from.insertBefore(document.importNode(wanted, true), at);
        continue;
      }
      if (have === at) at = at.nextSibling; else from.insertBefore(have, at);
      morph(have, wanted);
    }
    while (at) at = removed(at);
  }

  function removed(node) {
    const next = node.nextSibling;
    node.remove();
    return next;
  }

  function inView() {  // what the reader looks at, from the top: named things, those that begin here first
    if (scrollY <= 0) return [];
    const near = $$("#main [id]").filter((node) => node.checkVisibility?.() ?? node.offsetParent)
      .map((node) => [node, node.getBoundingClientRect()])
      .filter(([, box]) => box.height && box.bottom > 0 && box.top < innerHeight);
    const begun = near.filter(([, box]) => box.top < 0).reverse();
    return [...near.filter(([, box]) => box.top >= 0), ...begun].map(([node, box]) => [node, box.top]);
  }

  function keepInView(seen) {  // what came or went above it moves the page with it, and not what is read
    const [node, top] = seen.find(([each]) => each.isConnected && each.getClientRects().length) ?? [];
    const moved = node ? Math.round(node.getBoundingClientRect().top - top) : 0;
    if (moved) scrollBy({ top: moved, behavior: "instant" });
  }

  function take(page) {
    const fresh = $("#main", page), main = $("#main"), seen = inView();
    const focused = document.activeElement, said = $("[data-said]")?.textContent;
    tick(page);
    for (const [old, now] of [[$(".sheet"), $(".sheet", page)], [main, fresh], [$("#foot"), $("#foot", page)]]) {
      if (old && now) morph(old, now);
    }
    keepInView(seen);
    document.title = page.title;
    number = Math.max(number, Number(page.documentElement.dataset.number));
    root.dataset.zone = page.documentElement.dataset.zone;
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    const says = $("[data-said]")?.textContent;
    if (says && says !== said) say(says);
  }

  // -- fetching anew -----------------------------------------------------------------------------------------------

  let busy = false, again = false, timer = 0, last = 0;

  function want(at_once = false) {  // the first at once, then at most one a second
    if (timer && !at_once) return;
    clearTimeout(timer);
    const wait = at_once ? 0 : Math.max(0, last + APART_MS - Date.now());
    timer = setTimeout(() => { timer = 0; refresh(); }, wait);
  }

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    last = Date.now();
    const url = location.href;
    try {
      const answer = await fetch(url, {
        signal: AbortSignal.timeout(FETCH_MS), cache: "no-store", headers: { "Outlast-Number": String(number) },
      });
      if ([401, 403, 404].includes(answer.status) || answer.redirected) { location.reload(); return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.ok && isLive() && $("#main", page)) {
        if (url === location.href) take(page); else again = true;
      }
      gone(!answer.ok, answer.ok ? "" : $("h1", page)?.textContent);
    } catch {
      gone(true);
    } finally {
      busy = false;
      if (again) { again = false; want(true); }
    }
  }

  const goneText = $("#gone span")?.cloneNode(true);
  function gone(yes, why = "") {
    const notice = $("#gone");
    if (yes) $("span", notice).replaceChildren(...(why ? [why] : goneText.cloneNode(true).childNodes));
    if (notice.hidden === yes) notice.hidden = !yes;
  }

  // -- following the events ------------------------------------------------------------------------------------------

  let number = Number(root.dataset.number), source = null, failures = 0, retry = 0, held = false, missed = 0, state = "on";

  function show(now) {
    state = now;
    const button = $("#live");
    const changes = missed ? `, ${missed} ${missed === 1 ? "change" : "changes"}` : "";
    button.dataset.state = held ? "held" : now;
    const word = held ? `paused${changes}` : now === "on" ? "live" : "reconnecting…";
    if ($(".word", button).textContent !== word) $(".word", button).textContent = word;
  }

  function concerns(run) {
    const runs = $("#main").dataset.runs;
    return !runs || runs.split(" ").includes(run);
  }

  function connect() {
    clearTimeout(retry);
    if (source || !isLive() || document.hidden) return;
    source = new EventSource(`/api/events?after=${number}`);
    source.addEventListener("hello", (message) => {
      const { after } = JSON.parse(message.data);
      if (after < number) { number = after; want(true); }  // another store is there now, and counts from elsewhere
      failures = 0;
      gone(false);
      show("on");
    });
    source.onmessage = (message) => {
      const event = JSON.parse(message.data);
      if (event.n <= number) return;  // the page that was fetched meanwhile has it
      number = event.n;
      if (!concerns(event.run)) return;
      if (held) { missed += 1; show(state); } else want();
    };
    source.onerror = () => {  // our own patience, and from the last event that came
      disconnect();
      failures += 1;
      show("off");
      if (failures > 2) refresh();
      retry = setTimeout(connect, Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** (failures - 1)));
    };
  }

  function disconnect() {
    source?.close();
    source = null;
  }

  function hold() {
    if (!isLive()) return;
    held = !held;
    missed = 0;
    show(state);
    say(held ? "the page is held still" : "the page is live");
    if (!held) want(true);
  }

  function seen() {  // a page that nobody sees holds no connection: a browser has few for one server
    if (document.hidden) { disconnect(); clearTimeout(retry); return; }
    if (!held && isLive()) want(true);
    connect();
  }

  // -- forms and links -----------------------------------------------------------------------------------------------

  let typing = 0, slow = 0;

  function search(form) {
    const asked = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value && !(name === "sort" && value === "needs")) asked.append(name, value);
    history.replaceState(null, "", asked.size ? `/?${asked}` : "/");
    want(true);
  }

  function loading(yes) {
    clearTimeout(slow);
    if (yes) slow = setTimeout(() => { $("#loading").hidden = false; }, SLOW_MS); else $("#loading").hidden = true;
  }

  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (!form?.hasAttribute("data-auto")) return;
    clearTimeout(typing);
    typing = setTimeout(() => search(form), event.target.type === "search" ? TYPING_MS : 0);
  });

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method === "dialog") return;
    if (form.hasAttribute("data-auto")) {
      event.preventDefault();
      clearTimeout(typing);
      search(form);
      return;
    }
    if (form.method === "post") {
      if (form.dataset.sent) { event.preventDefault(); return; }
      form.dataset.sent = "1";
      for (const button of $$("button", form)) button.setAttribute("aria-disabled", "true");
    }
    loading(true);
  });

  document.addEventListener("click", (event) => {
    const target = event.target.closest("a, button");
    if (!target) {
      if (event.target.nodeName === "DIALOG") event.target.close();
      return;
    }
    if (target.matches("[data-copy]")) copy(target);
    else if (target.id === "live") hold();
    else if (target.id === "tool-theme") theme();
    else if (target.id === "tool-keys") $("#keys").showModal();
    else if (target.nodeName === "A" && !event.ctrlKey && !event.metaKey && !event.shiftKey
      && !(target.hash && target.pathname === location.pathname && target.search === location.search)) loading(true);
  });

  async function copy(button) {
    const code = button.parentElement.querySelector("code, pre");
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {  // not over plain HTTP from another machine: then the old way
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.dataset.done = "1";
    say("copied");
    setTimeout(() => { delete button.dataset.done; }, 1500);
  }

  function theme() {
    const next = { "": "light", light: "dark", dark: "" }[root.dataset.theme ?? ""];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    kept.set("theme", next);
    say(next ? `${next} colours` : "colours as the system has them");
  }

  // -- keys ----------------------------------------------------------------------------------------------------------

  let leading = 0;
  const places = { o: "/", s: "/saves", c: "/charts" };

  function step(by) {
    const rows = $$("[data-row]").filter((row) => row.offsetParent);
    const now = rows.indexOf(document.activeElement);
    const next = rows[now < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, now + by))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  const keys = {
    j: () => step(1), k: () => step(-1), p: hold, t: theme,
    "/": () => $("#q") ? $("#q").select() : location.assign("/#q"),
    "?": () => $("#keys").showModal(),
    g: () => { leading = Date.now(); },
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || $("dialog[open]")) return;
    if (isField(event.target) || event.target.isContentEditable) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (kept.get("keys") === "off") return;
    const place = Date.now() - leading < 1500 && places[event.key];
    leading = 0;
    if (place) location.assign(place);
    else if (Object.hasOwn(keys, event.key)) { event.preventDefault(); keys[event.key](); }
  });

  // -- beginning -----------------------------------------------------------------------------------------------------

  function begin() {
    const box = $("#keys-on");
    box.checked = kept.get("keys") !== "off";
    box.addEventListener("change", () => kept.set("keys", box.checked ? "" : "off"));
    $("#live").hidden = !isLive();
    if (location.hash === "#q") $("#q")?.focus();
    for (const chip of $$(".chips > [aria-current]")) chip.parentElement.scrollLeft = chip.offsetLeft - 60;
    tick(document);
    tellZone();
    connect();
    setInterval(() => tick(document), 5000);
    setInterval(() => { if (isLive() && !held && !document.hidden && Date.now() - last > LOOK_MS) want(); }, LOOK_MS / 2);
    setInterval(() => { if (isLive() && !held && document.hidden) refresh(); }, HIDDEN_MS);
    document.addEventListener("visibilitychange", seen);
    addEventListener("online", () => { if (!source) connect(); });
    addEventListener("pagehide", () => { disconnect(); loading(false); });
    addEventListener("pageshow", (event) => {
      loading(false);
      for (const form of $$("form[data-sent]")) delete form.dataset.sent;
      for (const button of $$("button[aria-disabled]")) button.removeAttribute("aria-disabled");
      if (event.persisted) seen();
    });
  }

  begin();
})();
