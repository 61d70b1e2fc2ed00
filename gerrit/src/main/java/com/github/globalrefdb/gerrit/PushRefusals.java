package com.github.globalrefdb.gerrit;

import com.google.gerrit.entities.Project;
import com.google.gerrit.server.git.ReceivePackInitializer;
import com.google.inject.Inject;
import java.util.LinkedHashSet;
import java.util.Set;
import org.eclipse.jgit.transport.PostReceiveHook;
import org.eclipse.jgit.transport.ReceiveCommand;
import org.eclipse.jgit.transport.ReceivePack;

/**
 * Shows pushers the reasons of refusals. The results of a push's commands can't contain them, and arrive as "internal
 * error".
 */
final class PushRefusals implements ReceivePackInitializer {
  private final RecentRefusals recent;

  @Inject
  PushRefusals(RecentRefusals recent) {
    this.recent = recent;
  }

  @Override
  public void init(Project.NameKey project, ReceivePack receivePack) {
    PostReceiveHook next = receivePack.getPostReceiveHook();
    long began = System.nanoTime();
    receivePack.setPostReceiveHook(
        (pack, commands) -> {
          tell(pack, began);
          next.onPostReceive(pack, commands);
        });
  }

  /** The hook itself receives only the commands that have succeeded. */
  private void tell(ReceivePack pack, long began) {
    if (pack.getAllCommands().stream().allMatch(command -> command.getResult() == ReceiveCommand.Result.OK)) {
      return;
    }
    Set<String> lines = new LinkedHashSet<>();
    GuardedRepository.of(pack.getRepository()).ifPresent(repository -> lines.addAll(repository.refusals().lines()));
    lines.addAll(recent.ofSequencesSince(began));
    lines.forEach(line -> pack.sendMessage("refdb: " + line));
  }
}
