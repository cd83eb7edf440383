import { useState } from "preact/hooks";
import { api, whoami } from "../api/client";
import { useTask } from "../lib/load";
import { Button, ProblemBox } from "../ui/basics";
import { Text } from "../ui/form";

export function LoginPage() {
  const [token, setToken] = useState("");
  const task = useTask();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    task.run(async () => whoami.set(await api.login(token.trim())));
  };
  return (
    <main class="login">
      <form class="card" onSubmit={submit}>
        <h1 class="logo"><img src="./tarn.svg" alt="" width="36" height="36" />Tarn</h1>
        <Text
          label="Token" type="password" value={token} set={setToken} required
          hint={<>Create one on the machine that runs Tarn with <code>tarn token add NAME admin</code>.</>}
        />
        <ProblemBox problem={task.problem} />
        <Button tone="primary" type="submit" disabled={task.busy || token.trim() === ""}>Log in</Button>
      </form>
    </main>
  );
}
