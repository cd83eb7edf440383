import { useState } from "preact/hooks";
import { api, ended, whoami } from "../api/client";
import { useTask } from "../lib/load";
import { useStore } from "../lib/store";
import { Button, Notice, ProblemBox } from "../ui/basics";
import { Text } from "../ui/form";

export function LoginPage() {
  const [token, setToken] = useState("");
  const task = useTask();
  const hasEnded = useStore(ended);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    task.run(async () => {
      const answer = await api.login(token.trim());
      ended.set(false);
      whoami.set(answer);
    });
  };
  return (
    <main class="login">
      <form class="card" onSubmit={submit}>
        <h1 class="logo"><img src="./tarn.svg" alt="" width="36" height="36" />Tarn</h1>
        <Text
          label="Token" type="password" value={token} set={setToken} required
          hint={<>Create one on the machine that runs Tarn with <code>tarn token add NAME admin</code>.</>}
        />
        {hasEnded && !task.problem && <Notice tone="warn">Your login has ended: its time is over, or its token was revoked. Log in again.</Notice>}
        <ProblemBox problem={task.problem} />
        <Button tone="primary" type="submit" disabled={task.busy || token.trim() === ""}>Log in</Button>
      </form>
    </main>
  );
}
