/** A modal dialog: the browser keeps the focus in it, and Escape closes it. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button } from "./basics";

export function Dialog({ title, close, children, wide }: {
  title: string; close: () => void; children: ComponentChildren; wide?: boolean;
}) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const cancel = (event: Event) => {
    event.preventDefault();
    close();
  };
  return (
    <dialog ref={element} class={wide ? "wide" : ""} aria-labelledby={id} onCancel={cancel}>
      <div class="card-head">
        <h2 id={id}>{title}</h2>
        <Button tone="plain" class="icon" onClick={close} aria-label="Close">×</Button>
      </div>
      {children}
    </dialog>
  );
}
