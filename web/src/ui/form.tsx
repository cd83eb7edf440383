/** Fields of forms, each with a label, a hint and what is wrong with its value. */
import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  /** What is wrong; nothing is, if empty. */
  error?: string | undefined;
}

interface Described {
  id: string;
  "aria-describedby": string;
  "aria-invalid": boolean;
}

function Field({ label, hint, error, children }: FieldProps & { children: (described: Described) => ComponentChildren }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, "aria-describedby": `${id}-hint`, "aria-invalid": Boolean(error) })}
      <p class={error ? "hint bad" : "hint"} id={`${id}-hint`}>{error || hint}</p>
    </div>
  );
}

interface TextProps extends FieldProps {
  value: string;
  set: (value: string) => void;
  type?: "text" | "password";
  required?: boolean;
  placeholder?: string;
  /** Suggestions. */
  options?: string[];
  disabled?: boolean;
}

export function Text({ value, set, type = "text", required, placeholder, options, disabled, ...field }: TextProps) {
  const list = useId();
  const kind = type === "password" ? { type, autocomplete: "new-password" } as const
    : options ? { type, list, autocomplete: "off" } as const : { type, autocomplete: "off" } as const;
  return (
    <Field {...field}>
      {(described) => (
        <>
          <input
            {...described} {...kind} value={value} required={required ?? false} placeholder={placeholder ?? ""}
            disabled={disabled ?? false} spellcheck={false} autocapitalize="off"
            onInput={(event) => set(event.currentTarget.value)}
          />
          {options && <datalist id={list}>{options.map((option) => <option key={option} value={option} />)}</datalist>}
        </>
      )}
    </Field>
  );
}

/** One entry a line. */
export function Lines({ value, set, rows = 3, placeholder, ...field }: FieldProps & {
  value: string; set: (value: string) => void; rows?: number; placeholder?: string;
}) {
  return (
    <Field {...field}>
      {(described) => (
        <textarea
          {...described} rows={rows} value={value} spellcheck={false} placeholder={placeholder ?? ""}
          onInput={(event) => set(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

export const linesOf = (text: string) => text.split("\n").map((line) => line.trim()).filter(Boolean);

export function Select<T extends string>({ value, set, options, ...field }: FieldProps & {
  value: T; set: (value: T) => void; options: readonly (readonly [T, string])[];
}) {
  return (
    <Field {...field}>
      {(described) => (
        <select {...described} value={value} onChange={(event) => set(event.currentTarget.value as T)}>
          {options.map(([each, title]) => <option key={each} value={each} selected={each === value}>{title}</option>)}
        </select>
      )}
    </Field>
  );
}

export function Check({ label, value, set }: { label: string; value: boolean; set: (value: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(event) => set(event.currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}

/** More ways than this stand side by side, where there is room. */
const COLUMN_MAX = 4;

/** A few ways, one of which is taken. */
export function Choice<T extends string>({ label, value, set, options }: {
  label: string; value: T; set: (value: T) => void; options: readonly (readonly [T, string, string?])[];
}) {
  const name = useId();
  return (
    <fieldset class="choice">
      <legend>{label}</legend>
      <div class={options.length > COLUMN_MAX ? "options" : "choice"}>
        {options.map(([each, title, hint]) => (
          <label key={each} class={each === value ? "option chosen" : "option"}>
            <input type="radio" name={name} checked={each === value} onChange={() => set(each)} />
            <span><strong>{title}</strong>{hint && <small>{hint}</small>}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

/** A field that suggests, and a button that takes what it has. */
export function Suggest({ label, options, add, hint, verb = "Add" }: {
  label: string; options: string[]; add: (value: string) => void; hint: string; verb?: string;
}) {
  const [text, setText] = useState("");
  if (options.length === 0) return null;
  const take = () => {
    if (text.trim()) add(text.trim());
    setText("");
  };
  return (
    <div class="suggest">
      <Text label={label} value={text} set={setText} options={options} hint={hint} />
      <button type="button" class="button" disabled={!text.trim()} onClick={take} aria-label={`${verb}: ${label}`}>{verb}</button>
    </div>
  );
}

/** With more than so many, one is found by its name. */
const CHECKS_MAX = 12;

/** Several of a list. */
export function Several({ label, all, value, set, none }: {
  label: string; all: string[]; value: string[]; set: (value: string[]) => void; none: string;
}) {
  const turn = (each: string, isIn: boolean) => set(isIn ? [...value, each] : value.filter((other) => other !== each));
  if (all.length > CHECKS_MAX) {
    const left = all.filter((each) => !value.includes(each));
    return (
      <fieldset class="choice">
        <legend>{label}</legend>
        <ul class="chips">
          {value.map((each) => (
            <li key={each}>{each} <button type="button" class="drop" aria-label={`Remove ${each}`} onClick={() => turn(each, false)}>×</button></li>
          ))}
        </ul>
        <Suggest label={`Add to: ${label}`} options={left} hint={`${left.length} more to choose from`} add={(each) => all.includes(each) && !value.includes(each) && turn(each, true)} />
      </fieldset>
    );
  }
  return (
    <fieldset class="choice">
      <legend>{label}</legend>
      {all.length === 0 && <p class="hint">{none}</p>}
      {all.map((each) => <Check key={each} label={each} value={value.includes(each)} set={(isIn) => turn(each, isIn)} />)}
    </fieldset>
  );
}
