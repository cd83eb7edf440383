/** Text with line numbers. */
import { useRef } from "preact/hooks";

const INDENT = "    ";

export function Editor({ value, set, label, readonly }: {
  value: string; set?: (value: string) => void; label: string; readonly?: boolean;
}) {
  const numbers = useRef<HTMLPreElement>(null);
  const lines = value.split("\n").length;
  const follow = (event: { currentTarget: HTMLTextAreaElement }) => {
    if (numbers.current) numbers.current.scrollTop = event.currentTarget.scrollTop;
  };
  /** Tab indents; Escape first, and it moves on, so that nobody is caught. */
  const isFree = useRef(false);
  const key = (event: KeyboardEvent & { currentTarget: HTMLTextAreaElement }) => {
    if (event.key === "Escape") isFree.current = true;
    if (event.key !== "Tab" || event.shiftKey || readonly || isFree.current) return;
    event.preventDefault();
    const area = event.currentTarget;
    area.setRangeText(INDENT, area.selectionStart, area.selectionEnd, "end");
    set?.(area.value);
  };
  return (
    <div class="editor">
      <pre ref={numbers} aria-hidden="true">{Array.from({ length: lines }, (_, at) => at + 1).join("\n")}</pre>
      <textarea
        aria-label={label} value={value} readOnly={readonly ?? false} spellcheck={false} wrap="off" autocapitalize="off"
        onInput={(event) => set?.(event.currentTarget.value)} onScroll={follow} onKeyDown={key}
        onFocus={() => { isFree.current = false; }}
      />
    </div>
  );
}
