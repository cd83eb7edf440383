/** The small pieces that pages are made of. */
import type { ComponentChildren } from "preact";
import type { Problem, Severity } from "../api/types";
import type { Loaded } from "../lib/load";

type Children = { children?: ComponentChildren };

export function Page(props: Children & { title: string; lead?: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <>
      <header class="page-head">
        <div>
          <h1 tabIndex={-1}>{props.title}</h1>
          {props.lead && <p class="lead">{props.lead}</p>}
        </div>
        {props.actions && <div class="actions">{props.actions}</div>}
      </header>
      {props.children}
    </>
  );
}

export function Card(props: Children & { title?: ComponentChildren; actions?: ComponentChildren; class?: string }) {
  return (
    <section class={`card ${props.class ?? ""}`}>
      {props.title && (
        <div class="card-head">
          <h2>{props.title}</h2>
          {props.actions && <div class="actions">{props.actions}</div>}
        </div>
      )}
      {props.children}
    </section>
  );
}

export function Badge(props: Children & { tone?: string }) {
  return <span class={`badge ${props.tone ?? ""}`}>{props.children}</span>;
}

const TONE: Record<Severity, string> = { info: "info", warning: "warn", error: "bad" };

export function SeverityBadge({ severity }: { severity: Severity }) {
  return <Badge tone={TONE[severity]}>{severity}</Badge>;
}

interface ButtonProps extends Children {
  tone?: "primary" | "danger" | "plain";
  type?: "button" | "submit";
  disabled?: boolean;
  class?: string;
  onClick?: (event: MouseEvent) => void;
  "aria-label"?: string;
  "aria-expanded"?: boolean;
}

export function Button({ tone, class: more = "", type = "button", ...rest }: ButtonProps) {
  return <button type={type} class={`button ${tone ?? ""} ${more}`} {...rest} />;
}

/** A problem of the server in words: what, where, and what to do. */
export function ProblemBox({ problem, retry }: { problem: Problem | undefined; retry?: () => void }) {
  if (!problem) return null;
  return (
    <div class="notice bad" role="alert">
      <strong>{problem.title}</strong>
      <p>{problem.place && <code>{problem.place}: </code>}{problem.detail}</p>
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}

export function Notice(props: Children & { tone?: "info" | "warn" | "good" }) {
  return <div class={`notice ${props.tone ?? "info"}`} role="status">{props.children}</div>;
}

export function Empty(props: Children & { title: string }) {
  return <div class="empty"><p class="empty-title">{props.title}</p>{props.children}</div>;
}

/** What was loaded, or that it is being loaded, or why it was not. */
export function Shown<T>({ from, children }: { from: Loaded<T>; children: (value: T) => ComponentChildren }) {
  return (
    <>
      <ProblemBox problem={from.problem} retry={from.reload} />
      {from.value !== undefined ? children(from.value)
        : !from.problem && <div class="loading" role="status"><span class="visually-hidden">Loading</span></div>}
    </>
  );
}

/** A name and its value. */
export type Fact = [string, ComponentChildren];

/** Names and values, side by side. */
export function Facts({ facts }: { facts: Fact[] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

/** Text in a box with a button that copies it. */
export function Copyable({ text, label }: { text: string; label: string }) {
  const copy = (event: MouseEvent) => {
    const button = event.currentTarget as HTMLButtonElement;
    const say = (word: string) => {
      button.textContent = word;
    };
    // Over plain HTTP there may be no clipboard; the text can be selected by hand.
    (navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("no clipboard")))
      .then(() => say("Copied"), () => say("Select and copy"));
  };
  return (
    <div class="copyable">
      <pre tabIndex={0} aria-label={label}>{text}</pre>
      <Button tone="plain" onClick={copy} aria-label={`Copy ${label}`}>Copy</Button>
    </div>
  );
}
