// Rows from pasted text, and requests to the server.

const NEVER_TEXT = "NaN";
let key = "";

export function useKey(given) { key = given; }

export class ApiError extends Error {
  constructor(status, body) {
    super(body.problem ?? `the server answered ${status}`);
    this.status = status;
    this.details = body;
  }
}

/** Ask the server; a body makes it a POST. */
export async function ask(path, body, signal) {
  const headers = key ? {Authorization: `Bearer ${key}`} : {};
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, {problem: "The server cannot be reached.", remedy: "Check that it runs, then try again."});
  }
  const reply = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, reply.error ?? {});
  return reply;
}

/** Pasted text as rows: a JSON array, {"rows": […]}, JSON lines, or a CSV with a header. */
export function rowsOf(text) {
  const trimmed = text.trim();
  if (!trimmed) throw new Error("There are no rows yet: paste some, choose a file, or fill in an example.");
  if (trimmed.startsWith("[") || trimmed.startsWith("{")) return jsonRows(trimmed);
  const [header, ...records] = csvRecords(trimmed);
  if (!records.length) throw new Error("There is only a header: add a line for each record.");
  const names = header.map((name) => name.trim());
  return records.map((cells, at) => {
    if (cells.length > names.length) {
      throw new Error(`Line ${at + 2} has ${cells.length} cells, but the header has ${names.length}. Put quotes around cells that contain the delimiter.`);
    }
    return Object.fromEntries(names.map((name, i) => [name, cells[i] === undefined || cells[i] === "" ? null : cells[i]]));
  });
}

function jsonRows(text) {
  try {
    const body = JSON.parse(text);
    return Array.isArray(body) ? body : body.rows ?? [body];
  } catch (error) {
    try {
      return text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
    } catch {
      throw new Error(`This is not valid JSON: ${error.message}`);
    }
  }
}

/** The records of a CSV; the delimiter is the first of , ; and tab that splits the header. */
export function csvRecords(text) {
  const header = text.slice(0, text.indexOf("\n") < 0 ? undefined : text.indexOf("\n"));
  const delimiter = [",", ";", "\t"].find((one) => header.includes(one)) ?? ",";
  const records = [];
  let record = [], cell = "", quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c === '"' && text[i + 1] === '"') { cell += '"'; i++; }
      else if (c === '"') quoted = false;
      else cell += c;
    } else if (c === '"' && cell === "") quoted = true;
    else if (c === delimiter) { record.push(cell); cell = ""; }
    else if (c === "\n" || c === "\r") {
      if (c === "\r" && text[i + 1] === "\n") i++;
      record.push(cell);
      if (record.length > 1 || record[0] !== "") records.push(record);
      record = []; cell = "";
    } else cell += c;
  }
  record.push(cell);
  if (record.length > 1 || record[0] !== "") records.push(record);
  return records;
}

/** Rows as a CSV, for the example. */
export function asCsv(rows) {
  const names = Object.keys(rows[0]);
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : Array.isArray(value) ? value[0] ?? "" : String(value);
    return /[",\n;\t]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names.map(cell).join(","), ...rows.map((row) => names.map((name) => cell(row[name])).join(","))].join("\n");
}

/** A number for people. */
export function percent(p) {
  if (Number.isNaN(p)) return NEVER_TEXT;
  const text = (100 * p).toFixed(1);
  return text === "0.0" && p > 0 ? "<0.1%" : text === "100.0" && p < 1 ? ">99.9%" : `${text}%`;
}
