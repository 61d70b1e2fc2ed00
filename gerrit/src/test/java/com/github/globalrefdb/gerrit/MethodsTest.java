package com.github.globalrefdb.gerrit;

import static java.lang.reflect.Modifier.isFinal;
import static java.lang.reflect.Modifier.isPrivate;
import static java.lang.reflect.Modifier.isProtected;
import static java.lang.reflect.Modifier.isPublic;
import static java.lang.reflect.Modifier.isStatic;
import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.stream.Collectors.joining;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.github.globalrefdb.gerrit.moves.Following;
import com.github.globalrefdb.gerrit.moves.SavedPlace;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

/**
 * What Gerrit and JGit can call on the guard's classes that the guard does not answer itself. A method that a version adds, or
 * whose parameters it changes, fails this test: look whether it can move a ref past the guard, and either override it or write it
 * into the list, {@code not-ours.txt}. A method without {@code @Override} that fits no longer overrides nothing, in silence.
 */
class MethodsTest {
  private static final List<Class<?>> CLASSES =
      List.of(
          GuardedRepositoryManager.class,
          GuardedRepository.class,
          GuardedRefDatabase.class,
          GuardedRefUpdate.class,
          GuardedBatchRefUpdate.class,
          GuardedRefRename.class,
          RestRefusals.class,
          PushRefusals.class,
          StartCheck.class,
          DaemonSessions.class,
          GuardMetrics.class,
          Following.class,
          SavedPlace.class,
          ProjectDeletions.class);

  @Test
  void whatIsNotOursIsKnown() throws IOException {
    Set<String> notOurs = new TreeSet<>();
    for (Class<?> ours : CLASSES) {
      Set<String> answered = new LinkedHashSet<>();
      Arrays.stream(ours.getDeclaredMethods()).filter(m -> !m.isBridge()).forEach(m -> answered.add(signature(m)));
      for (Class<?> above : ancestors(ours)) {
        for (Method method : above.getDeclaredMethods()) {
          if (canBeOverridden(method) && !answered.contains(signature(method))) {
            notOurs.add(ours.getSimpleName() + "." + signature(method));
          }
        }
      }
    }
    assertEquals(String.join("\n", known()), String.join("\n", notOurs));
  }

  private static boolean canBeOverridden(Method m) {
    int modifiers = m.getModifiers();
    return (isPublic(modifiers) || isProtected(modifiers))
        && !isStatic(modifiers)
        && !isFinal(modifiers)
        && !isPrivate(modifiers)
        && !m.isSynthetic();
  }

  private static String signature(Method m) {
    return m.getName() + Arrays.stream(m.getParameterTypes()).map(Class::getSimpleName).collect(joining(", ", "(", ")"));
  }

  private static Set<Class<?>> ancestors(Class<?> type) {
    Set<Class<?>> all = new LinkedHashSet<>();
    for (Class<?> above = type.getSuperclass(); above != null && above != Object.class; above = above.getSuperclass()) {
      all.add(above);
    }
    for (Class<?> above : List.copyOf(all)) {
      all.addAll(Arrays.asList(above.getInterfaces()));
    }
    all.addAll(Arrays.asList(type.getInterfaces()));
    all.remove(AutoCloseable.class);
    return all;
  }

  /** Lines {@code METHOD}, {@code METHOD from VERSION} and {@code METHOD before VERSION}, in order. */
  private static Set<String> known() throws IOException {
    Set<String> methods = new TreeSet<>();
    try (BufferedReader lines = new BufferedReader(new InputStreamReader(MethodsTest.class.getResourceAsStream("/not-ours.txt"), UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] words = line.split(" (from|before) ");
        boolean from = line.contains(" from ");
        if (!line.startsWith("#") && (words.length == 1 || from == isAtLeast(words[1]))) {
          methods.add(words[0]);
        }
      }
    }
    return methods;
  }

  private static boolean isAtLeast(String version) {
    return minor(System.getProperty("gerrit.version")) >= minor(version);
  }

  /** Of 3.MINOR.PATCH. */
  private static int minor(String version) {
    return Integer.parseInt(version.split("\\.")[1]);
  }
}
