package com.github.globalrefdb.gerrit.moves;

import static com.github.globalrefdb.gerrit.moves.UnreadableProject.ALL_PROJECTS;
import static com.github.globalrefdb.gerrit.moves.UnreadableProject.APP;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gerrit.entities.Project;
import com.google.gerrit.server.git.GitRepositoryManager;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import org.eclipse.jgit.errors.RepositoryNotFoundException;
import org.eclipse.jgit.lib.RepositoryCache;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

class ProjectPresenceTest {
  private static final Path OTHER_DISK = Path.of("/dev/shm");

  @TempDir Path site;
  private Path root;
  private GitRepositoryManager repositories;
  private ProjectPresence presence;

  @BeforeEach
  void setUp() throws IOException {
    repositories = UnreadableProject.repositories(site);
    root = site.resolve("git");
    presence = UnreadableProject.presence(repositories);
  }

  @AfterEach
  void tearDown() {
    RepositoryCache.clear();
  }

  @Test
  void aProjectThatIsThereIsNotGone() {
    assertFalse(presence.isGone(APP));
    assertFalse(presence.isGone(ALL_PROJECTS));
  }

  @Test
  void aDeletedProjectIsGoneAlsoIfTheDirectoryAboveIs() throws IOException {
    UnreadableProject.delete(site);
    assertTrue(presence.isGone(APP));
    Files.delete(root.resolve("team/docs"));
    Files.delete(root.resolve("team"));
    assertTrue(presence.isGone(APP));
  }

  /** The directory may be where a disk is to be mounted. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void inADirectoryWithoutOthersItIsGoneOnlyIfThatWasReported(boolean hasFile) throws IOException {
    UnreadableProject.delete(site);
    Files.delete(root.resolve("team/docs"));
    if (hasFile) {
      Files.createFile(root.resolve("team/.keep"));
    }
    isGoneOnlyIfThatWasReported();
  }

  @Test
  void onAnotherDiskItIsGoneOnlyIfThatWasReported() throws IOException {
    assumeTrue(Files.isDirectory(OTHER_DISK));
    Path disk = Files.createTempDirectory(OTHER_DISK, "gerrit");
    try {
      assumeTrue(!Files.getAttribute(disk, "unix:dev").equals(Files.getAttribute(root, "unix:dev")));
      Files.createDirectory(disk.resolve("docs"));
      Files.move(root.resolve("team"), site.resolve("away"));
      Files.createSymbolicLink(root.resolve("team"), disk);
      isGoneOnlyIfThatWasReported();
    } finally {
      Files.deleteIfExists(disk.resolve("docs"));
      Files.delete(disk);
    }
  }

  private void isGoneOnlyIfThatWasReported() {
    assertFalse(presence.isGone(APP));
    presence.reported(APP);
    assertTrue(presence.isGone(APP));
    assertFalse(presence.isGone(Project.nameKey("team/other")));
    presence.found(APP);
    assertFalse(presence.isGone(APP));
  }

  @Test
  void anEmptyDirectoryByItsNameMayBeAMountPoint() throws IOException {
    UnreadableProject.delete(site);
    Files.createDirectory(root.resolve("team/app"));
    assertFalse(presence.isGone(APP));
  }

  @Test
  void theDirectoryOfOtherProjectsIsNotTheProjectOfItsName() {
    assertTrue(presence.isGone(Project.nameKey("team")));
  }

  @ParameterizedTest
  @ValueSource(strings = {"team/app", "team/app/.git"})
  void otherDirectoriesInWhichGerritFindsItAreThere(String spelling) throws IOException {
    UnreadableProject.delete(site);
    Path other = root.resolve(spelling);
    Files.createDirectories(other.getParent());
    Files.move(site.resolve("removed"), other);
    repositories.openRepository(APP).close();
    assertFalse(presence.isGone(APP));
  }

  @ParameterizedTest
  @EnumSource
  void oneThatCannotBeReadIsNotGone(UnreadableProject why) throws IOException {
    assumeTrue(why.isPossible());
    why.breaks(site);
    assertThrows(RepositoryNotFoundException.class, () -> repositories.openRepository(APP));
    boolean gone = presence.isGone(APP);
    why.mend(site);
    assertFalse(gone);
  }

  @Test
  void withTooManyOpenFilesItIsNotGone() throws Exception {
    Path other = Files.createDirectory(site.resolve("limited"));
    Process limited =
        new ProcessBuilder(
                "sh",
                "-c",
                "ulimit -n 400 && exec \"$0\" \"$@\"",
                Path.of(System.getProperty("java.home"), "bin/java").toString(),
                "-cp",
                System.getProperty("java.class.path"),
                TooManyOpenFiles.class.getName(),
                other.toString())
            .redirectError(ProcessBuilder.Redirect.DISCARD)
            .start();
    String said = new String(limited.getInputStream().readAllBytes(), UTF_8);
    assertEquals("found false true, not found false false\n", said);
  }

  /** All-Projects is elsewhere: an empty directory may be where a disk is to be mounted. */
  @Test
  void anotherBasePathWithoutDirectoriesLooksUnmounted() throws IOException {
    Path other = Files.createDirectory(site.resolve("other"));
    ProjectPresence both = new ProjectPresence(project -> project.equals(APP) ? other : root, ALL_PROJECTS);
    both.reported(APP);
    assertFalse(both.isGone(APP));
    Files.createFile(other.resolve(".keep"));
    assertFalse(both.isGone(APP));
    Files.createDirectory(other.resolve("some.git"));
    assertTrue(both.isGone(APP));
    Files.delete(other.resolve("some.git"));
    Files.delete(other.resolve(".keep"));
    Files.delete(other);
    assertFalse(both.isGone(APP));
  }

  @Test
  void aListWithoutAllProjectsIsNotComplete() {
    assertTrue(presence.areListed(Set.of(ALL_PROJECTS)));
    assertFalse(presence.areListed(Set.of(APP)));
  }

  @Test
  void whyAProjectCannotBeReadIsTheCause() {
    IOException why = new IOException("as the test says");
    assertEquals(why, assertThrows(IOException.class, () -> presence.checkGone(APP, why)).getCause());
  }
}
