"""The plugin that outlast gives opencode for one run: it asks before each call, and writes a journal of what happens.
A call that is not allowed is not made. The journal has the shape of `opencode run --format json`.
"""

PLUGIN = """\
// Written by outlast for one run; see agents/opencode/plugin.py there. It asks before each call, and fails closed.
import { spawn } from "node:child_process"
import { appendFileSync } from "node:fs"

const command = COMMAND
const journal = JOURNAL
const said_max = 1 << 20
const models_max = 10_000
const children = new Set()
const sessions = new Map() // each with the question whether it is a child, and null once that is known
const models = new Map() // by the message that a step is part of

const lane = (session) => (children.has(session) ? session : "")
const note = (record) => {
  try {
    appendFileSync(journal, JSON.stringify(record) + "\\n")
  } catch {}
}
const ask = (input) =>
  new Promise((resolve, reject) => {
    let said = ""
    let why = "" // a denial's reason is on stderr, as other agents want it
    const child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "pipe"] })
    child.on("error", (error) => reject(new Error(`outlast could not be asked, so this was not done: ${error.message}`)))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (data) => {
      if (said.length < said_max) said += data
    })
    child.stderr.on("data", (data) => {
      if (why.length < said_max) why += data
    })
    child.on("close", (code) => {
      if (code === 0) resolve(said)
      else reject(new Error(why.trim() || said.trim() || "outlast did not allow this, so it was not done"))
    })
    child.stdin.end(JSON.stringify(input))
  })

export const Outlast = async ({ client, directory }) => {
  // A session that goes on may have been made before we were started: nothing tells of it but opencode, if asked.
  const learn = async (session) => {
    try {
      const found = await client.session.get({ path: { id: session } })
      if (found.data?.parentID) children.add(session)
    } catch {}
    sessions.set(session, null)
  }
  const unknown = (session) => {
    if (session && !sessions.has(session)) sessions.set(session, learn(session))
    return session && sessions.get(session)
  }
  const told = (name, call, more) => ({
    hook_event_name: name,
    session_id: call.sessionID,
    lane: lane(call.sessionID),
    cwd: directory,
    tool_name: call.tool,
    tool_call_id: call.callID,
    ...more,
  })
  return {
    "tool.execute.before": async (call, output) => {
      if (unknown(call.sessionID)) await sessions.get(call.sessionID)
      await ask(told("PreToolUse", call, { tool_input: output.args }))
    },
    "tool.execute.after": async (call, output) => {
      const result = typeof output?.output === "string" ? output.output : JSON.stringify(output ?? null)
      try {
        const words = await ask(told("PostToolUse", call, { tool_output: result, exit_code: output?.metadata?.exit }))
        if (words && typeof output?.output === "string") output.output += "\\n" + words
      } catch {}
    },
    event: async ({ event }) => {
      const of = event.properties ?? {}
      if (event.type === "session.created") {
        sessions.set(of.info?.id, null)
        if (of.info?.parentID) children.add(of.info.id)
        else {
          note({ type: "session", sessionID: of.info?.id })
          await ask({ hook_event_name: "SessionStart", session_id: of.info?.id, cwd: directory }).catch(() => {})
        }
      } else if (event.type === "session.error") {
        note({ type: "error", sessionID: of.sessionID, lane: lane(of.sessionID), error: of.error })
      } else if (event.type === "message.updated") {
        if (of.info?.modelID && models.size < models_max) models.set(of.info.id, of.info.modelID)
      } else if (event.type === "message.part.updated") {
        if (unknown(of.part?.sessionID)) await sessions.get(of.part.sessionID)
        const part = of.part ?? {}
        const record = { sessionID: part.sessionID, lane: lane(part.sessionID), model: models.get(part.messageID), part }
        if (part.type === "step-start") note({ type: "step_start", ...record })
        if (part.type === "step-finish") note({ type: "step_finish", ...record })
        if (part.type === "text" && part.time?.end) note({ type: "text", ...record })
        if (part.type === "tool" && ["completed", "error"].includes(part.state?.status)) note({ type: "tool_use", ...record })
      }
    },
  }
}
"""
